"""A step's numbers, each of the raw batch, whatever was cut and skipped."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal import metrics
from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import row_counts
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.rollout.episodes import Episode
from rl_sentinel.train.update.policy_update import Batch, Learned


def measured(  # noqa: PLR0913 - all that a step came to
    recipe: Recipe, episodes: list[Episode], batch: Batch, ready: Ready, seen: Learned, *, step: int
) -> dict[str, Any]:
    """What ``metrics.jsonl`` holds of a step, but its number.

    ``reward`` and ``accuracy`` are means over trajectories, as the environment judged them; ``kl`` is in nats per
    token; ``entropy`` is minus the mean log-prob of the sampled tokens, in nats per token; ``response_length`` is in
    trained tokens per trajectory; ``clip_fraction``, ``ended`` and ``dead_groups`` are shares; ``staleness`` is how
    many updates the sampler was behind, a mean over turns.
    """
    rollout = batch.laid.rollout
    known = rollout.rollout_logprob
    assert known is not None  # noqa: S101 - laid out with it
    outcomes = [e.outcome for e in episodes if e.outcome is not None]
    whole = len(outcomes)
    return {
        "reward": sum(o.reward for o in outcomes) / whole,
        "accuracy": sum(o.correct for o in outcomes) / whole,
        "kl": _divergence(known, batch, ready, seen),
        "clip_fraction": _clipped(recipe, batch, seen),
        "entropy": float(-metrics.statistics(known, mask=rollout.mask).mean),
        "response_length": float(row_counts(mask=rollout.mask).sum()) / whole,
        "ended": sum(e.ended for e in episodes) / whole,
        "dead_groups": float(metrics.dead_group_fraction(ready.reward, group=ready.group, live=ready.kept)),
        "staleness": _mean([step - version for e in episodes for version in e.versions]),
        "loss": seen.loss,
        "gradient_norm": seen.norm,
    }


def _divergence(known: Float[Tensor, "B T"], batch: Batch, ready: Ready, seen: Learned) -> float:
    """The raw KL to the reference; without one, k3 of who sampled to who learns, over the rows learned from."""
    if ready.kl is not None:
        return float(metrics.statistics(ready.kl, mask=batch.laid.rollout.mask).mean)
    mask = batch.mask & seen.rows.unsqueeze(1)
    return float(metrics.mean_kl(known, seen.logprob, mask=mask).k3)


def _clipped(recipe: Recipe, batch: Batch, seen: Learned) -> float:
    """The share of trained tokens whose gradient the clip took, 0 for a loss without clips."""
    low, high = (recipe.loss.numbers.get(name) for name in ("clip_low", "clip_high"))
    if low is None or high is None or batch.old_logprob is None:
        return 0.0
    now = torch.where(seen.rows.unsqueeze(1), seen.logprob, batch.old_logprob)
    told = {"mask": batch.mask, "clip_low": low, "clip_high": high}
    return float(metrics.clip_fraction(now, batch.old_logprob, batch.advantage, **told).tokens)


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)
