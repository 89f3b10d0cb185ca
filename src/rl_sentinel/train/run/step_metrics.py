"""Compute the metrics of a step over the whole batch, however it was split for the update."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal import metrics
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import row_counts
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.rollout.episodes import Episode
from rl_sentinel.train.update.policy_update import UpdateResult
from rl_sentinel.train.update.training_batch import TrainingBatch


def compute_step_metrics(  # noqa: PLR0913 - all results of a step
    recipe: Recipe, episodes: list[Episode], batch: TrainingBatch, ready: Ready, result: UpdateResult, *, step: int
) -> dict[str, Any]:
    """The metrics of a step, without its number.

    ``reward`` and ``accuracy`` are means over trajectories whose reward did not fail; ``failed`` is the share of failed
    rewards; ``kl`` is in nats per token; ``entropy`` is minus the mean log-prob of the sampled tokens, in nats per
    token; ``response_length`` is in trained tokens per trajectory; ``clip_fraction``, ``ended`` and ``dead_groups`` are
    shares; ``staleness`` is the number of updates that the sampling policy lagged behind, a mean over turns.
    """
    rollout = batch.laid.rollout
    sampled_logprob = rollout.rollout_logprob
    assert sampled_logprob is not None  # noqa: S101 - laid out with it
    outcomes = [e.outcome for e in episodes if e.outcome is not None and not e.failure]
    count, scored = len(episodes), max(1, len(outcomes))
    staleness = [step - version for e in episodes for version in e.versions]
    return {
        "reward": sum(o.reward for o in outcomes) / scored,
        "accuracy": sum(o.correct for o in outcomes) / scored,
        "kl": _mean_kl(sampled_logprob, batch, ready, result),
        "clip_fraction": _clip_fraction(recipe, batch, result),
        "entropy": float(-metrics.statistics(sampled_logprob, mask=rollout.mask).mean),
        "response_length": float(row_counts(mask=rollout.mask).sum()) / count,
        "ended": sum(e.ended for e in episodes) / count,
        "failed": sum(bool(e.failure) for e in episodes) / count,
        "dead_groups": float(metrics.dead_group_fraction(ready.reward, group=ready.group, live=ready.kept)),
        "staleness": sum(staleness) / len(staleness),
        "loss": result.loss,
        "gradient_norm": result.norm,
    }


def _mean_kl(sampled_logprob: Float[Tensor, "B T"], batch: TrainingBatch, ready: Ready, result: UpdateResult) -> float:
    """The raw KL to the reference, over tokens that are not rejected.

    Without a reference: k3 from the sampling to the trained policy, over trained rows.
    """
    if ready.kl is not None:
        return float(metrics.statistics(ready.kl, mask=ready.mask).mean)
    mask = batch.mask & result.rows.unsqueeze(1)
    return float(metrics.mean_kl(sampled_logprob, result.logprob, mask=mask).k3)


def _clip_fraction(recipe: Recipe, batch: TrainingBatch, result: UpdateResult) -> float:
    """The share of trained tokens without a gradient because of the clip; 0 without clips or old log-probs."""
    low, high = (recipe.loss.parameters.get(name) for name in ("clip_low", "clip_high"))
    if low is None or high is None or batch.old_logprob is None:
        return 0.0
    logprob = torch.where(result.rows.unsqueeze(1), result.logprob, batch.old_logprob)
    clips = {"clip_low": low, "clip_high": high}
    return float(metrics.clip_fraction(logprob, batch.old_logprob, batch.advantage, mask=batch.mask, **clips).tokens)
