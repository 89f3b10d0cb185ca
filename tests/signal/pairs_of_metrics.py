"""Metrics of the library beside their oracles."""

import torch
from oracle import measures
from oracle.draws import Draw
from pairs import Pair
from torch import Tensor

from rl_sentinel.signal import metrics, staleness


def _stacked(found: metrics.Statistics | metrics.Clipped | metrics.MeanKl | staleness.Staleness) -> Tensor:
    return torch.stack([x for x in found if isinstance(x, Tensor)])


def _counted(x: Draw, *names: str) -> list[list[float]]:
    return [measures.counted(getattr(x, n).tolist(), x.mask.tolist()) for n in names]


def _of_rows(x: Draw) -> list[float]:
    return [r for r, on in zip(x.reward.tolist(), x.live.tolist(), strict=True) if on]


def _version(x: Draw) -> Tensor:
    """From 0 to 3, of any numbers."""
    return (8 * x.value.nan_to_num() + 3 * x.token_reward.nan_to_num()).round().long() % 4


#: Functions of the whole batch.
WHOLE: dict[str, Pair] = {
    "metrics.statistics": (
        lambda x: _stacked(metrics.statistics(x.value, mask=x.mask)),
        lambda x: measures.statistics(*_counted(x, "value")),
    ),
    "metrics.statistics, rows": (
        lambda x: _stacked(metrics.statistics(x.reward, mask=x.live)),
        lambda x: measures.statistics(_of_rows(x)),
    ),
    "metrics.share": (
        lambda x: metrics.share(x.value > 0, mask=x.mask),
        lambda x: measures.share([v > 0 for v in _counted(x, "value")[0]]),
    ),
    "metrics.share, rows": (
        lambda x: metrics.share(x.scored, mask=x.live),
        lambda x: measures.share([s for s, on in zip(x.scored.tolist(), x.live.tolist(), strict=True) if on]),
    ),
    "metrics.clip_fraction": (
        lambda x: _stacked(
            metrics.clip_fraction(x.logprob, x.old, x.advantage, mask=x.mask, clip_low=0.3, clip_high=0.5)
        ),
        lambda x: measures.clip_fraction(
            x.logprob.tolist(), x.old.tolist(), x.advantage.tolist(), x.mask.tolist(), 0.3, 0.5
        ),
    ),
    "metrics.mean_kl": (
        lambda x: _stacked(metrics.mean_kl(x.logprob, x.ref, mask=x.mask)),
        lambda x: measures.mean_kl(x.logprob.tolist(), x.ref.tolist(), x.mask.tolist()),
    ),
    "metrics.effective_sample_size": (
        lambda x: metrics.effective_sample_size(x.weight, mask=x.mask),
        lambda x: measures.effective_sample_size(*_counted(x, "weight")),
    ),
    "staleness.staleness": (
        lambda x: _stacked(staleness.staleness(_version(x), mask=x.mask, current=7)),
        lambda x: measures.staleness(_version(x).tolist(), x.mask.tolist(), 7),
    ),
    "staleness.fresh_rows": (
        lambda x: staleness.fresh_rows(_version(x), mask=x.mask, current=4, most=2),
        lambda x: measures.fresh_rows(_version(x).tolist(), x.mask.tolist(), 4, 2.0),
    ),
    "metrics.dead_group_fraction": (
        lambda x: metrics.dead_group_fraction(x.reward, group=x.group, live=x.live),
        lambda x: measures.dead_group_fraction(x.reward.tolist(), x.group.tolist(), x.live.tolist()),
    ),
    "metrics.explained_variance": (
        lambda x: metrics.explained_variance(x.value, x.token_reward, mask=x.mask),
        lambda x: measures.explained_variance(*_counted(x, "value", "token_reward")),
    ),
}
