"""The gradient of one mini-batch, computed in parts and over ranks. In training, the loss is called only here."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal import penalty
from rl_sentinel.signal.covariance import covariances
from rl_sentinel.signal.reduce import Aggregation, live_rows
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.device import CPU, send
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.update.response_logprobs import compute_for_rows, response_logprobs, sort_by_length
from rl_sentinel.train.update.training_batch import TrainingBatch


class NotFiniteError(SentinelError):
    """A number of an update is not finite, or an input of the loss is not valid; the run stops."""

    def __init__(
        self,
        message: str,
        batch: TrainingBatch,
        rows: Tensor,
        coefficient: float,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the data to repeat the step: batch, rows of the mini-batch, KL coefficient, and further state."""
        super().__init__(message)
        self.batch, self.rows, self.coefficient, self.state = batch, rows, coefficient, dict(state or {})


class GradientResult(NamedTuple):
    """The rows that this rank computed with their log-probs; the loss and the gradient norm over all ranks."""

    rows: Int[Tensor, " n"]
    logprob: Float[Tensor, "n T"]
    loss: float
    norm: float


def compute_gradient(  # noqa: PLR0913 - the model, the mini-batch, the components, and how it is divided
    policy: Policy,
    batch: TrainingBatch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    recipe: Recipe,
    coefficient: float,
    ranks: Ranks = ALONE,
    generator: torch.Generator | None = None,
) -> GradientResult:
    """Put the clipped gradient of a mini-batch on the policy's weights; 0 if no row has a gradient.

    Raises:
        NotFiniteError: if the loss or the gradient is not finite on any rank, or an input of the loss is not valid.
    """
    weights = [weight for weight in policy.model.parameters() if weight.requires_grad]  # a walk over all modules
    for weight in weights:
        weight.grad = None
    try:
        batch = choose_tokens(policy, batch, rows, selection=selection, recipe=recipe, ranks=ranks, generator=generator)
    except InputError as error:
        raise NotFiniteError(str(error), batch, rows, coefficient) from error
    group = batch.laid.rollout.group
    whole = selection.aggregation(recipe, batch.mask[rows], group[rows])
    place = torch.zeros_like(group).scatter(0, rows, torch.arange(len(rows), device=rows.device))
    total, computed_rows, logprobs = torch.zeros((), device=policy.device), [rows[:0]], []
    live, lengths = rows_with_gradient(batch, rows, lazy=selection.lazy), batch.laid.prompt_length + batch.laid.length
    for part in ranks.own_parts(live, size=recipe.update.rows, budget=recipe.update.tokens, lengths=lengths):
        try:
            computed = part if len(part) else rows[:1]  # a rank without rows still runs the sharded model
            logprob = response_logprobs(policy, batch.laid, computed, temperature=recipe.rollout.temperature)
            by = whole.of_rows(place[computed])
            loss = compute_loss(logprob, batch, computed, selection=selection, aggregation=by, coefficient=coefficient)
        except InputError as error:
            raise NotFiniteError(str(error), batch, rows, coefficient) from error
        loss = loss if len(part) else loss * 0
        (loss * ranks.size).backward()  # type: ignore[no-untyped-call]  # FSDP takes the mean over ranks
        total += loss.detach()
        computed_rows.append(part)
        logprobs.append(logprob.detach()[: len(part)])
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    norm_of_all = _full_norm(torch.nn.utils.clip_grad_norm_(weights, recipe.update.clip))
    # The one place of a mini-batch that waits for the device: a step with a gradient that is not finite is not taken.
    loss_of_all, norm = torch.stack((ranks.all_reduce(total), norm_of_all)).tolist()
    if not (math.isfinite(loss_of_all) and math.isfinite(norm)):
        fix = "look for very large rewards, and for overflow in a loss of yours; after finite steps, lower update.rate"
        message = f"loss is {loss_of_all}, gradient norm {norm}, expected finite numbers: {fix}"
        raise NotFiniteError(message, batch, rows, coefficient)
    logprob_of_all = torch.cat([batch.advantage[:0], *(part.to(CPU) for part in logprobs)])
    return GradientResult(torch.cat(computed_rows), logprob_of_all, loss_of_all, norm)


def choose_tokens(  # noqa: PLR0913 - as above
    policy: Policy,
    batch: TrainingBatch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    recipe: Recipe,
    ranks: Ranks = ALONE,
    generator: torch.Generator | None = None,
) -> TrainingBatch:
    """The batch with ``chosen`` set for a mini-batch, if the loss reads it."""
    if selection.choose_tokens is None or batch.chosen is not None:
        return batch
    update, mask = recipe.update, batch.mask[rows]
    parts = {"temperature": recipe.rollout.temperature, "size": update.rows, "budget": update.tokens}
    logprob = compute_for_rows(policy, batch.laid, **parts, ranks=ranks, rows=rows)  # type: ignore[arg-type]  # numbers
    covariance = covariances(logprob[rows], batch.advantage[rows], mask=mask)
    chosen = torch.zeros_like(batch.mask)
    chosen[rows] = selection.choose_tokens(covariance, mask=mask, generator=generator)
    return replace(batch, chosen=chosen)


def rows_with_gradient(batch: TrainingBatch, rows: Int[Tensor, " n"], *, lazy: bool) -> Int[Tensor, " m"]:
    """The rows of a mini-batch that may have a gradient, sorted by length.

    Rows without a trained token are left out; with ``lazy``, so are rows with advantage 0. The denominator of the
    loss counts them anyway.
    """
    live = live_rows(batch.mask[rows])
    if lazy:
        live &= (batch.advantage[rows] != 0).any(dim=1)
    return sort_by_length(batch.laid, rows[live])


def compute_loss(  # noqa: PLR0913 - the columns, the rows, and the components
    logprob: Float[Tensor, "n T"],
    batch: TrainingBatch,
    rows: Int[Tensor, " n"],
    *,
    selection: Selection,
    aggregation: Aggregation,
    coefficient: float,
) -> Float[Tensor, ""]:
    """The loss of some rows of a mini-batch plus the weighted KL, on the device of the log-probs."""

    def column(values: Tensor) -> Tensor:
        return send(values[rows], logprob.device)

    mask = column(batch.mask)
    old = logprob.detach() if batch.old_logprob is None else column(batch.old_logprob)
    columns = {"old_logprob": old, "advantage": column(batch.advantage), "mask": mask}
    columns |= {} if batch.chosen is None else {"chosen": column(batch.chosen)}
    if aggregation.prompt_tokens is not None:
        aggregation = replace(aggregation, prompt_tokens=send(aggregation.prompt_tokens, logprob.device))
    read = inspect.signature(selection.loss).parameters
    if "turn" in read and batch.laid.rollout.turn is not None:
        columns["turn"] = column(batch.laid.rollout.turn)
    loss = selection.loss(logprob, **{k: v for k, v in columns.items() if k in read}, aggregation=aggregation)
    if coefficient and selection.choices.kl is not None and batch.ref_logprob is not None:
        kl = selection.choices.kl(logprob, column(batch.ref_logprob), mask=mask)
        loss = loss + penalty.as_loss(kl, mask=mask, coefficient=coefficient, aggregation=aggregation)
    return loss


def _full_norm(norm: Tensor) -> Tensor:
    """A gradient norm as a whole tensor, also if it is sharded."""
    full = getattr(norm, "full_tensor", None)
    return norm if full is None else full()
