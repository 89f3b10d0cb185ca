"""The update: mini-batches of prompts, an optimizer step each. The loss is called here, and nowhere else."""

import inspect
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal import penalty
from rl_sentinel.signal.minibatches import prompt_minibatches
from rl_sentinel.signal.reduce import Aggregation, live_rows
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.policy import Policy
from rl_sentinel.train.recipe import Recipe
from rl_sentinel.train.scoring import scored
from rl_sentinel.train.selection import Selection


class NotFiniteError(SentinelError):
    """A loss or a gradient that is no number: the run stops before the optimizer steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What an update learns from: the sequences, and what the path made of them.

    ``old_logprob`` is None where one mini-batch is all there is: the policy before the update is the current one.
    """

    laid: Laid
    mask: Bool[Tensor, "B T"]
    advantage: Float[Tensor, "B T"]
    old_logprob: Float[Tensor, "B T"] | None
    ref_logprob: Float[Tensor, "B T"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What an update saw: log-probs as they were when each row was learned from, and which rows were.

    ``loss`` is the mean over mini-batches; ``norm`` the largest of the gradient's norms before it was clipped.
    """

    logprob: Float[Tensor, "B T"]
    rows: Bool[Tensor, " B"]
    loss: float
    norm: float


def learned(  # noqa: PLR0913 - what learns, from what, and how
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    *,
    selection: Selection,
    recipe: Recipe,
    coefficient: float,
    order: torch.Generator,
) -> Learned:
    """Take the optimizer steps of one batch.

    Args:
        policy: what learns.
        optimizer: of the policy's parameters, its rate already set.
        batch: what is learned from.
        selection: the loss among others.
        recipe: cuts, epochs and the bound of the gradient.
        coefficient: price of the KL within the loss, in units of the loss per nat.
        order: shuffles prompts into mini-batches.

    Raises:
        NotFiniteError: if a loss or a gradient is not; the weights are those before that mini-batch.
    """
    group, now = batch.laid.rollout.group, torch.zeros_like(batch.advantage)
    seen = torch.zeros(len(group), dtype=torch.bool, device=group.device)
    losses, norm = [], 0.0
    for _ in range(recipe.update.epochs):
        for rows in prompt_minibatches(group, prompts=recipe.update.prompts, generator=order):
            optimizer.zero_grad()
            aggregation, total = selection.aggregation(recipe, batch.mask[rows]), 0.0
            for part in parts(batch, rows, lazy=selection.lazy, size=recipe.update.rows):
                logprob = scored(policy, batch.laid, part, temperature=recipe.rollout.temperature)
                loss = loss_of(
                    logprob, batch, part, selection=selection, aggregation=aggregation, coefficient=coefficient
                )
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                now[part], seen[part], total = logprob.detach(), True, total + float(loss.detach())
            norm = max(norm, _stepped(policy, optimizer, total, bound=recipe.update.clip))
            losses.append(total)
    return Learned(logprob=now, rows=seen, loss=sum(losses) / len(losses), norm=norm)


def parts(batch: Batch, rows: Int[Tensor, " n"], *, lazy: bool, size: int) -> list[Int[Tensor, " m"]]:
    """A mini-batch's rows, some at a time, those of like length together.

    Rows without a trained token are left out; if ``lazy``, those without an advantage too: neither adds to the
    gradient, whose denominator was counted before.
    """
    speaks = live_rows(batch.mask[rows])
    if lazy:
        speaks &= (batch.advantage[rows] != 0).any(dim=1)
    rows = rows[speaks]
    width = (batch.laid.prompt_length + batch.laid.length)[rows]
    return list(torch.split(rows[width.argsort(stable=True)], size)) if len(rows) else []


def loss_of(  # noqa: PLR0913 - columns, their rows, and what is done with them
    logprob: Float[Tensor, "n T"],
    batch: Batch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    aggregation: Aggregation,
    coefficient: float,
) -> Float[Tensor, ""]:
    """The loss of some rows of a mini-batch: the recipe's, and the KL at its price."""
    mask = batch.mask[rows]
    old = logprob.detach() if batch.old_logprob is None else batch.old_logprob[rows]
    known = {"old_logprob": old, "advantage": batch.advantage[rows], "mask": mask}
    wanted = inspect.signature(selection.loss).parameters
    loss = selection.loss(logprob, **{k: v for k, v in known.items() if k in wanted}, aggregation=aggregation)
    if coefficient and selection.choices.kl is not None and batch.ref_logprob is not None:
        kl = selection.choices.kl(logprob, batch.ref_logprob[rows], mask=mask)
        loss = loss + penalty.as_loss(kl, mask=mask, coefficient=coefficient, aggregation=aggregation)
    return loss


def rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step, counted from 0: a ramp up, then constant, or down to 0 at the last step.

    Example:
        >>> from rl_sentinel.train.recipe import Update
        >>> from types import SimpleNamespace
        >>> recipe = SimpleNamespace(steps=10, update=Update(prompts=1, rate=1.0, ramp=2, schedule="linear"))
        >>> [rate(recipe, step) for step in (0, 1, 5)]
        [0.5, 0.9, 0.5]
    """
    update, done = recipe.update, step / recipe.steps
    down = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[update.schedule]
    return update.rate * min(1.0, (step + 1) / max(update.ramp, 1)) * down


def _stepped(policy: Policy, optimizer: torch.optim.Optimizer, loss: float, *, bound: float) -> float:
    """One optimizer step, unless a number is none; what has no gradient is moved by momentum alone, as if it were 0."""
    for weight in policy.model.parameters():
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    norm = float(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), bound))
    if not torch.tensor([loss, norm]).isfinite().all():
        raise NotFiniteError(f"loss is {loss}, norm of the gradient {norm}, expected finite numbers")
    optimizer.step()
    return norm
