"""The critic of temporal estimators: a copy of the policy with a value head, fitted to returns."""

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
from rl_sentinel.train.config.settings import CriticSettings, UpdateSettings
from rl_sentinel.train.model.device import send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.distributed import ALONE
from rl_sentinel.train.update.optimizer_step import NonFiniteStepError, take_optimizer_step
from rl_sentinel.train.update.response_logprobs import sort_by_length


@dataclass(frozen=True, slots=True)
class FitResult:
    """The mean loss over mini-batches, and the explained variance of the returns before the fit."""

    loss: float
    explained_variance: float


class CriticStepError(SentinelError):
    """A step of the critic is not finite; carries the step's rows and the state needed to repeat it."""

    def __init__(self, message: str, rows: Int[Tensor, " n"], state: Mapping[str, Any]) -> None:
        """Store the message, the rows and the state; the critic is unchanged by the step."""
        super().__init__(message)
        self.rows, self.state = rows, dict(state)


@dataclass(slots=True)
class Critic:
    """A value model with its optimizer and settings; every rank has the whole model and computes all rows."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    settings: CriticSettings

    def values(self, laid: Laid, rows: Int[Tensor, " n"]) -> Float[Tensor, "n T"]:
        """The value before each response token, in reward units; 0 after a response."""
        device = next(self.model.parameters()).device
        longest = int((laid.prompt_length + laid.length)[rows].max())
        values = self.model(send(laid.token[rows, :longest], device))[..., 0]
        lengths = {"prompt_length": send(laid.prompt_length[rows], device), "length": send(laid.length[rows], device)}
        width = laid.rollout.mask.shape[1]  # type: ignore[union-attr]  # laid out padded
        return response_aligned(values, **lengths, width=width, predicts_next=True)

    @torch.no_grad()
    def predict(self, laid: Laid, *, update: UpdateSettings) -> Float[Tensor, "B T"]:
        """Values of all rows without a gradient, in parts as in the update."""
        rows = torch.arange(len(laid.length), device=laid.token.device)
        values = torch.zeros(laid.rollout.mask.shape, device=rows.device)  # type: ignore[union-attr]  # laid out padded
        for part in _parts(laid, rows, update):
            values[part] = self.values(laid, part).to(rows.device)
        return values

    def fit(self, laid: Laid, ready: Ready, *, update: UpdateSettings, order: torch.Generator) -> FitResult:
        """Fit the values to the returns, with mini-batches of prompts as in the policy update.

        Raises:
            CriticStepError: if a number of a step is not finite; the weights stay as before that mini-batch.
            SentinelError: if a step that is not finite cannot be rolled back.
        """
        old, returns, mask = laid.rollout.value, ready.returns, ready.mask
        assert old is not None  # noqa: S101 - predicted before
        assert returns is not None  # noqa: S101 - every temporal estimator has returns
        assert isinstance(mask, Tensor)  # noqa: S101 - laid out padded
        losses = []
        for _ in range(update.epochs):
            parts = prompt_minibatches(ready.group, prompts=update.prompts, generator=order)
            losses += [self.fit_minibatch(laid, returns, mask, rows, update=update) for rows in parts]
        explained = metrics.explained_variance(old, returns, mask=mask)
        return FitResult(sum(losses) / len(losses), float(explained))

    def fit_minibatch(
        self,
        laid: Laid,
        returns: Float[Tensor, "B T"],
        mask: Bool[Tensor, "B T"],
        rows: Int[Tensor, " n"],
        *,
        update: UpdateSettings,
    ) -> float:
        """Take the optimizer step of one mini-batch, and return its loss.

        Raises:
            CriticStepError: if a number of the step, such as a weight, is not finite; the weights stay as before.
            SentinelError: if a step that is not finite cannot be rolled back.
        """
        old = laid.rollout.value
        assert old is not None  # noqa: S101 - predicted before
        self.model.zero_grad()
        whole, total = aggregation("token-mean", mask=mask[rows]), 0.0
        try:
            for part in _parts(laid, rows, update):
                values = self.values(laid, part)
                loss = value_loss(
                    values,
                    *(send(column[part], values.device) for column in (old, returns)),
                    mask=send(mask[part], values.device),
                    value_clip=self.settings.clip,
                    aggregation=whole,
                )
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                total += float(loss.detach())
            norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), update.clip))
            if not math.isfinite(total + norm):
                fix = "look for very large rewards, or lower critic.rate"
                message = f"loss is {total}, gradient norm {norm}, expected finite numbers: {fix}"
                raise NonFiniteStepError(message)  # noqa: TRY301 - handled like the others
            take_optimizer_step(self.optimizer, key="critic.rate")
        except (InputError, NonFiniteStepError) as error:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            columns = {"returns": returns, "mask": mask}
            raise CriticStepError(f"critic: {error}", rows, state | columns) from error
        return total


def _parts(laid: Laid, rows: Int[Tensor, " n"], update: UpdateSettings) -> list[Int[Tensor, " m"]]:
    """Parts of similar length, of at most ``update.rows`` rows and ``update.tokens`` tokens."""
    lengths = laid.prompt_length + laid.length
    return ALONE.own_parts(sort_by_length(laid, rows), size=update.rows, budget=update.tokens, lengths=lengths)


def build_critic(policy: Policy, settings: CriticSettings | None, *, recompute: bool = False) -> Critic | None:
    """Copy the policy with a value head of zeros; None if the recipe has no critic.

    With ``recompute``, layers are computed again for the gradient, as in the policy.

    Raises:
        SentinelError: if the policy's logits are not a plain product of hidden states and a weight.
    """
    if settings is None:
        return None
    projection = policy.model.head
    if not isinstance(projection, Tensor):
        raise SentinelError(
            "critic needs a policy whose logits are hidden states times a weight; those of policy.load have a bias or "
            "are computed further: choose another model, or an estimator that reads no values and remove [critic]"
        )
    model = copy.deepcopy(policy.model)
    head = nn.Linear(projection.shape[1], 1, bias=False, device=policy.device)
    nn.init.zeros_(head.weight)
    model.replace_head(head)  # type: ignore[operator]  # modules are untyped
    if recompute:
        model.enable_recompute()  # type: ignore[operator]  # as above
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=settings.betas, weight_decay=0.0)
    return Critic(model, optimizer, settings)
