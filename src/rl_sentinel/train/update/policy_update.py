"""Update the policy: epochs over mini-batches of prompts; learning rate and check of the new weights."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.minibatches import prompt_minibatches
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.update.minibatch_gradient import NotFiniteError, compute_gradient
from rl_sentinel.train.update.optimizer_step import NonFiniteStepError, take_optimizer_step
from rl_sentinel.train.update.response_logprobs import response_logprobs
from rl_sentinel.train.update.training_batch import TrainingBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """The rows that were trained on, and the log-probs at that time.

    ``loss`` is the mean over mini-batches; ``norm`` is the largest gradient norm before clipping.
    """

    logprob: Float[Tensor, "B T"]
    rows: Bool[Tensor, " B"]
    loss: float
    norm: float


def update_policy(  # noqa: PLR0913 - the model, the batch, the components, and how it is divided
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: TrainingBatch,
    *,
    selection: Selection,
    recipe: Recipe,
    coefficient: float,
    order: torch.Generator,
    ranks: Ranks = ALONE,
) -> UpdateResult:
    """Take the optimizer steps of one batch.

    Args:
        policy: the policy.
        optimizer: the policy's optimizer, with its learning rate set.
        batch: the batch; the same on all ranks.
        selection: the components, of which the loss is used.
        recipe: the mini-batches, epochs and gradient clip.
        coefficient: coefficient of the KL in the loss, in units of the loss per nat.
        order: shuffles prompts into mini-batches, and draws the tokens that a loss treats differently.
        ranks: the ranks that share the batch.

    Raises:
        NotFiniteError: if a number of the update is not finite, or an input of the loss is not valid; the weights stay
            as before that mini-batch.
        SentinelError: if a step that is not finite cannot be undone.
    """
    group, logprob = batch.laid.rollout.group, torch.zeros_like(batch.advantage)
    trained = torch.zeros(len(group), dtype=torch.bool, device=group.device)
    losses, norm = [], 0.0
    for _ in range(recipe.update.epochs):
        for rows in prompt_minibatches(group, prompts=recipe.update.prompts, generator=order):
            gradient = compute_gradient(
                policy,
                batch,
                rows,
                selection=selection,
                recipe=recipe,
                coefficient=coefficient,
                ranks=ranks,
                generator=order,
            )
            try:
                take_optimizer_step(optimizer, key="update.rate", ranks=ranks)
            except NonFiniteStepError as error:
                state = _optimizer_state(optimizer, ranks)
                raise NotFiniteError(str(error), batch, rows, coefficient, state) from error
            logprob[rows] = 0.0  # in another epoch another rank may have computed a row
            logprob[gradient.rows], trained[gradient.rows] = gradient.logprob, True
            losses.append(gradient.loss)
            norm = max(norm, gradient.norm)
    logprob, trained = ranks.all_reduce(logprob), ranks.all_reduce(trained.int()) > 0
    return UpdateResult(logprob=logprob, rows=trained, loss=sum(losses) / len(losses), norm=norm)


def require_finite_logprobs(policy: Policy, batch: TrainingBatch, *, recipe: Recipe) -> None:
    """Reject weights that are finite but give log-probs that are not, on the row with the most trained tokens.

    Call it on all ranks.

    Raises:
        NotFiniteError: if a log-prob is not finite.
    """
    rows = batch.mask.sum(dim=1).argmax().reshape(1)
    try:
        with torch.no_grad():
            response_logprobs(policy, batch.laid, rows, temperature=recipe.rollout.temperature)
    except InputError as error:
        message = f"after the update {str(error).partition(':')[0]}: lower update.rate"
        raise NotFiniteError(message, batch, rows, 0.0, {"after": True}) from error


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step, counted from 0: the schedule, times a linear warm-up."""
    update, done = recipe.update, step / recipe.steps
    decay = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[update.schedule]
    return update.rate * min(1.0, (step + 1) / max(update.ramp, 1)) * decay


def _optimizer_state(optimizer: torch.optim.Optimizer, ranks: Ranks) -> dict[str, Any]:
    """The state to repeat an optimizer step: learning rate and moments; no moments if they are sharded over ranks."""
    rate = optimizer.param_groups[0]["lr"]
    return {"rate": rate, "moments": optimizer.state_dict() if ranks.size == 1 else None}
