"""From trajectories to what an update is given: the one place where the path is called."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.rollout import Laid
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import Models, Policy
from rl_sentinel.train.rollout.episodes import Episode, laid
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.distributed import ALONE, Ranks
from rl_sentinel.train.run.failed_step import UnfitError
from rl_sentinel.train.update.critic import Critic
from rl_sentinel.train.update.policy_update import Batch
from rl_sentinel.train.update.response_logprobs import scored, scored_all, squared


def prepared(  # noqa: PLR0913 - what is chosen, who is asked, what was sampled, and when
    recipe: Recipe,
    selection: Selection,
    models: Models,
    episodes: list[Episode],
    *,
    step: int,
    price: float,
    ranks: Ranks = ALONE,
    critic: Critic | None = None,
) -> tuple[Batch, Ready]:
    """Lay trajectories out, ask the models what they think of them, and carry them along the path.

    The policy before the update is asked only where the update takes several optimizer steps, a correction compares
    it with the one that sampled, or the estimator reads its squared probabilities; else it is the one that is
    learning. ``price`` is that of the KL where the recipe puts it into the reward, in reward units per nat.

    Raises:
        UnfitError: if the path refuses what was sampled.
    """
    how = recipe.rollout
    sequences = laid(episodes, merged=how.merged, padding=models.policy.padding, unended=how.unended)
    if how.shuffled_rewards:
        sequences = _shuffled(sequences, rng.generator(recipe.seed, "shuffle", step))
    often = recipe.update.epochs > 1 or recipe.update.prompts < how.prompts

    def asked(policy: Policy, of: Callable[..., Tensor] = scored) -> Tensor:
        return scored_all(policy, sequences, temperature=how.temperature, size=recipe.update.rows, ranks=ranks, of=of)

    squares = asked(models.policy, squared) if "pi_squared" in selection.reads else None
    old = asked(models.policy) if often or selection.compares or squares is not None else None
    ref = None if models.reference is None else asked(models.reference)
    known = sequences.rollout.rollout_logprob if old is None else old
    value = None if critic is None else critic.judged(sequences, size=recipe.update.rows)
    rollout = replace(sequences.rollout, old_logprob=known, ref_logprob=ref, value=value, pi_squared=squares)
    sequences = replace(sequences, rollout=rollout)
    paid = price if recipe.kl is not None and recipe.kl.reward else 0.0
    try:
        ready = selection.path(rollout, by=replace(selection.choices, kl_coefficient=paid))
    except InputError as error:
        raise UnfitError(str(error), sequences) from error
    assert isinstance(ready.mask, Tensor)  # noqa: S101 - laid out padded
    batch = Batch(laid=sequences, mask=ready.mask, advantage=ready.token_advantage(), old_logprob=old, ref_logprob=ref)
    return batch, ready


def _shuffled(sequences: Laid, source: torch.Generator) -> Laid:
    """Rewards, and their parts, given to other trajectories than earned them: a control; nothing can be learned."""
    rollout = sequences.rollout
    assert rollout.trajectory is not None  # noqa: S101 - laid out with it
    first = torch.unique(rollout.trajectory, return_inverse=True)[1]
    of = torch.zeros(int(first.max()) + 1, dtype=torch.long).scatter(0, first, torch.arange(len(first)))
    row = of[torch.randperm(len(of), generator=source)][first]
    parts = None if rollout.reward_parts is None else rollout.reward_parts[row]
    return replace(sequences, rollout=replace(rollout, reward=rollout.reward[row], reward_parts=parts))
