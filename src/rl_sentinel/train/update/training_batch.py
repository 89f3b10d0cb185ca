"""Turn trajectories into a training batch: lay them out, compute log-probs and values, call the signal's path."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.policy import Models, Policy
from rl_sentinel.train.rollout.episodes import Episode, lay_out_episodes
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.stopwatch import Measure, unmeasured
from rl_sentinel.train.update.critic import Critic
from rl_sentinel.train.update.response_logprobs import compute_for_rows, response_logprobs, squared_probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """The input of an update.

    ``old_logprob`` is None only if the batch is one mini-batch, whose old policy is the current one. ``chosen`` are the
    tokens that the loss treats differently; None until they are selected per mini-batch.
    """

    laid: Laid
    mask: Bool[Tensor, "B T"]
    advantage: Float[Tensor, "B T"]
    old_logprob: Float[Tensor, "B T"] | None
    ref_logprob: Float[Tensor, "B T"] | None
    chosen: Bool[Tensor, "B T"] | None = None


class PathError(SentinelError):
    """The signal's path rejected a batch, such as one with a reward that is not finite."""

    def __init__(self, message: str, laid: Laid) -> None:
        """Store the rejected batch as ``laid``."""
        super().__init__(message)
        self.laid = laid


def build_training_batch(  # noqa: PLR0913 - the components, the models, the episodes, and the step's state
    recipe: Recipe,
    selection: Selection,
    models: Models,
    episodes: list[Episode],
    *,
    step: int,
    kl_coefficient: float,
    ranks: Ranks = ALONE,
    critic: Critic | None = None,
    measure: Measure = unmeasured,
) -> tuple[TrainingBatch, Ready]:
    """Lay trajectories out, add the columns that the recipe needs, and call ``signal.path``.

    Log-probs of the policy before the update are computed only if an update has several optimizer steps, a correction
    needs them, or the estimator reads squared probabilities. ``kl_coefficient`` applies if the recipe has the KL in the
    reward, in reward units per nat. ``measure`` times the reference.

    Raises:
        PathError: if the path rejects the batch.
    """
    rollout, update = recipe.rollout, recipe.update
    laid = lay_out_episodes(episodes, merged=rollout.merged, padding=models.policy.padding, unended=rollout.unended)
    if rollout.shuffled_rewards:
        laid = _shuffle_rewards(laid, rng.torch_generator(recipe.seed, "shuffle", step))
    several_steps = update.epochs > 1 or update.prompts < rollout.prompts

    def compute(policy: Policy, function: Callable[..., Tensor] = response_logprobs) -> Tensor:
        settings = {"temperature": rollout.temperature, "size": update.rows, "budget": update.tokens}
        return compute_for_rows(policy, laid, **settings, ranks=ranks, function=function)  # type: ignore[arg-type]  # numbers

    squares = compute(models.policy, squared_probabilities) if "pi_squared" in selection.reads else None
    old = compute(models.policy) if several_steps or selection.needs_old_logprob or squares is not None else None
    with measure("reference"):
        ref = None if models.reference is None else compute(models.reference)
    columns = replace(
        laid.rollout,
        old_logprob=laid.rollout.rollout_logprob if old is None else old,
        ref_logprob=ref,
        value=None if critic is None else critic.predict(laid, update=update),
        pi_squared=squares,
    )
    laid = replace(laid, rollout=columns)
    coefficient = kl_coefficient if recipe.kl is not None and recipe.kl.reward else 0.0
    try:
        ready = selection.path(columns, by=replace(selection.choices, kl_coefficient=coefficient))
    except InputError as error:
        raise PathError(str(error), laid) from error
    assert isinstance(ready.mask, Tensor)  # noqa: S101 - laid out padded
    batch = TrainingBatch(
        laid=laid, mask=ready.mask, advantage=ready.token_advantage(), old_logprob=old, ref_logprob=ref
    )
    return batch, ready


def _shuffle_rewards(laid: Laid, generator: torch.Generator) -> Laid:
    """Permute rewards and their parts over trajectories, as a control experiment in which nothing can be learned."""
    rollout = laid.rollout
    assert rollout.trajectory is not None  # noqa: S101 - laid out with it
    trajectory = torch.unique(rollout.trajectory, return_inverse=True)[1]
    row = torch.zeros(int(trajectory.max()) + 1, dtype=torch.long, device=CPU)
    row = row.scatter(0, trajectory, torch.arange(len(trajectory), device=CPU))
    source = row[torch.randperm(len(row), generator=generator, device=CPU)][trajectory]
    parts = None if rollout.reward_parts is None else rollout.reward_parts[source]
    return replace(laid, rollout=replace(rollout, reward=rollout.reward[source], reward_parts=parts))
