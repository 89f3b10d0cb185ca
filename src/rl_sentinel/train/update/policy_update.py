"""The update: mini-batches of prompts, an optimizer step each. The loss is called here, and nowhere else."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal import penalty
from rl_sentinel.signal.covariance import covariances
from rl_sentinel.signal.minibatches import prompt_minibatches
from rl_sentinel.signal.reduce import Aggregation, live_rows
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.update.optimizer_step import RuinedError, stepped
from rl_sentinel.train.update.response_logprobs import by_length, scored, scored_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What an update learns from: the sequences, and what the path made of them.

    ``old_logprob`` is None where one mini-batch is all there is: the policy before the update is the current one.
    ``chosen`` are the tokens that the loss treats apart; None until a mini-batch chooses its own.
    """

    laid: Laid
    mask: Bool[Tensor, "B T"]
    advantage: Float[Tensor, "B T"]
    old_logprob: Float[Tensor, "B T"] | None
    ref_logprob: Float[Tensor, "B T"] | None
    chosen: Bool[Tensor, "B T"] | None = None


class NotFiniteError(SentinelError):
    """A loss, a gradient, or weights after an optimizer's step that are no numbers: the run stops."""

    def __init__(
        self, message: str, batch: Batch, rows: Tensor, coefficient: float, more: Mapping[str, Any] | None = None
    ) -> None:
        """With the batch, the rows of the mini-batch, the price of the KL, and what else would do it again."""
        super().__init__(message)
        self.batch, self.rows, self.coefficient, self.more = batch, rows, coefficient, dict(more or {})


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
    ranks: Ranks = ALONE,
) -> Learned:
    """Take the optimizer steps of one batch.

    Args:
        policy: what learns.
        optimizer: of the policy's parameters, its rate already set.
        batch: what is learned from.
        selection: the loss among others.
        recipe: cuts, epochs and the bound of the gradient.
        coefficient: price of the KL within the loss, in units of the loss per nat.
        order: shuffles prompts into mini-batches, and draws the tokens that a loss treats apart.
        ranks: who learns from which rows; all see the same batch.

    Raises:
        NotFiniteError: if a loss, a gradient or a weight is not; the weights are those before that mini-batch.
    """
    group, now = batch.laid.rollout.group, torch.zeros_like(batch.advantage)
    seen = torch.zeros(len(group), dtype=torch.bool, device=group.device)
    losses, norm = [], 0.0
    for _ in range(recipe.update.epochs):
        for rows in prompt_minibatches(group, prompts=recipe.update.prompts, generator=order):
            found = gradient(
                policy,
                batch,
                rows,
                selection=selection,
                recipe=recipe,
                coefficient=coefficient,
                ranks=ranks,
                source=order,
            )
            try:
                stepped(optimizer, key="update.rate", ranks=ranks)
            except RuinedError as error:
                raise NotFiniteError(str(error), batch, rows, coefficient, more=_stepping(optimizer, ranks)) from error
            now[rows] = 0.0  # the rank that learned from a row in another epoch need not be the one that does now
            now[found.rows], seen[found.rows] = found.logprob, True
            losses.append(found.loss)
            norm = max(norm, found.norm)
    now, seen = ranks.added(now), ranks.added(seen.int()) > 0
    return Learned(logprob=now, rows=seen, loss=sum(losses) / len(losses), norm=norm)


def require_sound(policy: Policy, batch: Batch, *, recipe: Recipe) -> None:
    """Refuse weights that are numbers and compute none: by the log-probs of the longest trained response.

    All ranks must ask, and have the same answer.

    Raises:
        NotFiniteError: if one of a trained token is not finite.
    """
    rows = batch.mask.sum(dim=1).argmax().reshape(1)
    try:
        with torch.no_grad():
            scored(policy, batch.laid, rows, temperature=recipe.rollout.temperature)
    except InputError as error:
        words = f"by the weights after it {str(error).partition(':')[0]}: take a lower update.rate"
        raise NotFiniteError(words, batch, rows, 0.0, more={"after": True}) from error


def _stepping(optimizer: torch.optim.Optimizer, ranks: Ranks) -> dict[str, Any]:
    """What takes an optimizer's step again: its rate and its moments, which one rank of several has in parts alone."""
    rate = optimizer.param_groups[0]["lr"]
    return {"rate": rate, "moments": optimizer.state_dict() if ranks.size == 1 else None}


class Gradient(NamedTuple):
    """What a mini-batch came to: the rows computed here with their log-probs; the loss and the norm of all ranks."""

    rows: Int[Tensor, " n"]
    logprob: Float[Tensor, "n T"]
    loss: float
    norm: float


def gradient(  # noqa: PLR0913 - as for learned, of one mini-batch
    policy: Policy,
    batch: Batch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    recipe: Recipe,
    coefficient: float,
    ranks: Ranks = ALONE,
    source: torch.Generator | None = None,
) -> Gradient:
    """Put the clipped gradient of a mini-batch on the policy's weights; 0 where there is none.

    Raises:
        NotFiniteError: if the loss or the gradient is not, on whichever rank.
    """
    policy.model.zero_grad()
    try:
        batch = told_apart(policy, batch, rows, selection=selection, recipe=recipe, ranks=ranks, source=source)
    except InputError as error:
        raise NotFiniteError(str(error), batch, rows, coefficient) from error
    group = batch.laid.rollout.group
    whole = selection.aggregation(recipe, batch.mask[rows], group[rows])
    place = torch.zeros_like(group).scatter(0, rows, torch.arange(len(rows), device=rows.device))
    total, done, said = torch.zeros(()), [rows[:0]], [batch.advantage[:0]]
    for part in ranks.mine(speaking(batch, rows, lazy=selection.lazy), size=recipe.update.rows):
        try:
            reads = part if len(part) else rows[:1]  # a rank without rows goes through the model all the same
            logprob = scored(policy, batch.laid, reads, temperature=recipe.rollout.temperature)
            by = whole.of_rows(place[reads])
            loss = loss_of(logprob, batch, reads, selection=selection, aggregation=by, coefficient=coefficient)
        except InputError as error:
            raise NotFiniteError(str(error), batch, rows, coefficient) from error
        loss = loss if len(part) else loss * 0
        (loss * ranks.size).backward()  # type: ignore[no-untyped-call]  # torch's own; a mean is taken over ranks
        total += loss.detach()
        done.append(part)
        said.append(logprob.detach()[: len(part)])
    for weight in policy.model.parameters():
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    norm = _whole(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), recipe.update.clip))
    found = float(ranks.added(total))
    if not torch.tensor([found, norm]).isfinite().all():
        words = f"loss is {found}, norm of the gradient {norm}, expected finite numbers"
        raise NotFiniteError(words, batch, rows, coefficient)
    return Gradient(torch.cat(done), torch.cat(said), found, norm)


def told_apart(  # noqa: PLR0913 - as for gradient
    policy: Policy,
    batch: Batch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    recipe: Recipe,
    ranks: Ranks = ALONE,
    source: torch.Generator | None = None,
) -> Batch:
    """The batch with the tokens of a mini-batch that the loss treats apart, if it does and they are not chosen yet.

    They are chosen by the covariance of advantage and log-prob, of the policy as it is now, over the mini-batch.
    """
    if selection.chosen is None or batch.chosen is not None:
        return batch
    heat, mask = recipe.rollout.temperature, batch.mask[rows]
    logprob = scored_all(policy, batch.laid, temperature=heat, size=recipe.update.rows, ranks=ranks, rows=rows)
    found = covariances(logprob[rows], batch.advantage[rows], mask=mask)
    chosen = torch.zeros_like(batch.mask)
    chosen[rows] = selection.chosen(found, mask=mask, generator=source)
    return replace(batch, chosen=chosen)


def speaking(batch: Batch, rows: Int[Tensor, " n"], *, lazy: bool) -> Int[Tensor, " m"]:
    """The rows of a mini-batch that have a gradient, those of like length together.

    Rows without a trained token are left out; if ``lazy``, those without an advantage too: neither adds to the
    gradient, whose denominator was counted before.
    """
    speaks = live_rows(batch.mask[rows])
    if lazy:
        speaks &= (batch.advantage[rows] != 0).any(dim=1)
    return by_length(batch.laid, rows[speaks])


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
    known |= {} if batch.chosen is None else {"chosen": batch.chosen[rows]}
    wanted = inspect.signature(selection.loss).parameters
    if "turn" in wanted and batch.laid.rollout.turn is not None:
        known["turn"] = batch.laid.rollout.turn[rows]
    loss = selection.loss(logprob, **{k: v for k, v in known.items() if k in wanted}, aggregation=aggregation)
    if coefficient and selection.choices.kl is not None and batch.ref_logprob is not None:
        kl = selection.choices.kl(logprob, batch.ref_logprob[rows], mask=mask)
        loss = loss + penalty.as_loss(kl, mask=mask, coefficient=coefficient, aggregation=aggregation)
    return loss


def rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step, counted from 0: a ramp up, then constant, or down to 0 at the last step.

    Example:
        >>> from types import SimpleNamespace
        >>> from rl_sentinel.train.config.recipe import Update
        >>> from rl_sentinel.train.update.policy_update import rate
        >>> recipe = SimpleNamespace(steps=10, update=Update(prompts=1, rate=1.0, ramp=2, schedule="linear"))
        >>> [rate(recipe, step) for step in (0, 1, 5)]
        [0.5, 0.9, 0.5]
    """
    update, done = recipe.update, step / recipe.steps
    down = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[update.schedule]
    return update.rate * min(1.0, (step + 1) / max(update.ramp, 1)) * down


def _whole(norm: Tensor) -> float:
    """A norm over weights that may lie on several ranks."""
    whole = getattr(norm, "full_tensor", None)
    return float(norm if whole is None else whole())
