"""The critic of temporal estimators: the policy's trunk with a head of one number, fitted to returns."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal import metrics
from rl_sentinel.signal.align import response_aligned
from rl_sentinel.signal.minibatches import aggregation, prompt_minibatches
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.signal.value import value_loss
from rl_sentinel.train.config.recipe import Critic as Numbers
from rl_sentinel.train.config.recipe import Update
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.update.optimizer_step import RuinedError, stepped


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a fit saw: the mean loss over its mini-batches, and how much of the returns' variance was told before it."""

    loss: float
    explained: float


class UnfittedError(SentinelError):
    """A critic's step that is none; with its rows, and what does it again."""

    def __init__(self, message: str, rows: Int[Tensor, " n"], again: Mapping[str, Any]) -> None:
        """The critic is as before that step."""
        super().__init__(message)
        self.rows, self.again = rows, dict(again)


@dataclass(slots=True)
class Critic:
    """A model of values, its optimizer and its numbers; each rank has all of it, and reads all rows."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    numbers: Numbers

    def values(self, laid: Laid, rows: Int[Tensor, " n"]) -> Float[Tensor, "n T"]:
        """The value of each response token, in reward units, before it is said; 0 behind a response."""
        found = self.model(laid.token[rows])[..., 0]
        where = {"prompt_length": laid.prompt_length[rows], "length": laid.length[rows]}
        width = laid.rollout.mask.shape[1]  # type: ignore[union-attr]  # laid out padded
        return response_aligned(found, **where, width=width, predicts_next=True)

    @torch.no_grad()
    def judged(self, laid: Laid, *, size: int) -> Float[Tensor, "B T"]:
        """Values of all rows, some at a time, without a gradient."""
        return torch.cat([self.values(laid, part) for part in torch.split(torch.arange(len(laid.length)), size)])

    def fit(self, laid: Laid, ready: Ready, *, how: Update, order: torch.Generator) -> Fitted:
        """Move the values towards the returns, by the same mini-batches of prompts as the policy's.

        Raises:
            UnfittedError: if a loss or a weight is no number.
        """
        old, returns, mask = laid.rollout.value, ready.returns, ready.mask
        assert old is not None  # noqa: S101 - judged before
        assert returns is not None  # noqa: S101 - made by a temporal estimator
        assert isinstance(mask, Tensor)  # noqa: S101 - laid out padded
        losses = []
        for _ in range(how.epochs):
            parts = prompt_minibatches(ready.group, prompts=how.prompts, generator=order)
            losses += [self.turned(laid, returns, mask, rows, how=how) for rows in parts]
        return Fitted(sum(losses) / len(losses), float(metrics.explained_variance(old, returns, mask=mask)))

    def turned(
        self,
        laid: Laid,
        returns: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        rows: Int[Tensor, " n"],
        *,
        how: Update,
    ) -> float:
        """Take the optimizer's step of one mini-batch, and answer its loss.

        Raises:
            UnfittedError: if the loss or a weight after the step is no number; the weights are those before it.
        """
        old = laid.rollout.value
        assert old is not None  # noqa: S101 - judged before
        self.model.zero_grad()
        whole, total = aggregation("token-mean", mask=mask[rows]), 0.0
        try:
            for part in torch.split(rows, how.rows):
                loss = value_loss(
                    self.values(laid, part),
                    old[part],
                    returns[part],
                    mask=mask[part],
                    value_clip=self.numbers.clip,
                    aggregation=whole,
                )
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                total += float(loss.detach())
            norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), how.clip))
            if not math.isfinite(total + norm):
                words = (
                    f"loss is {total}, norm of the gradient {norm}, expected finite numbers: take a lower critic.rate"
                )
                raise RuinedError(words)  # noqa: TRY301 - told with the others
            stepped(self.optimizer, key="critic.rate")
        except (InputError, RuinedError) as error:
            again = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            known = {"returns": returns, "mask": mask}
            raise UnfittedError(f"critic: {error}", rows, again | known) from error
        return total


def critic_of(policy: Policy, numbers: Numbers | None) -> Critic | None:
    """A critic with the policy's trunk as it is now, that expects 0 everywhere; none where the recipe has none."""
    if numbers is None:
        return None
    model = copy.deepcopy(policy.model)
    head = nn.Linear(model.lm_head.in_features, 1, bias=False)  # type: ignore[union-attr,arg-type]  # a Llama's
    nn.init.zeros_(head.weight)
    model.lm_head = head
    optimizer = torch.optim.AdamW(model.parameters(), lr=numbers.rate, betas=numbers.betas, weight_decay=0.0)
    return Critic(model, optimizer, numbers)
