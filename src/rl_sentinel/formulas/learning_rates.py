"""Learning-rate schedules as fractions of the peak: warm-up, then constant or cosine."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of


def _cosine(progress: float, floor: float) -> float:
    """The rate on half a period of a cosine, which falls from 1 to the floor."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def _after_warm_up(update: int, settings: Settings, rate: Callable[[float, float], float]) -> float:
    """The rate of an update: a linear warm-up from 0 to 1, then ``rate(since, left)``.

    ``since`` is the number of updates since the warm-up, ``left`` the number of all updates after it.
    """
    warm, total = number_of(settings, "warm_up"), number_of(settings, "updates")
    return update / warm if update < warm else rate(update - warm, total - warm)


def _stable(since: float, left: float, settings: Settings) -> float:
    """The peak rate for the share ``stable`` of these updates, rounded down; then half a period of a cosine."""
    stable = math.floor(left * number_of(settings, "stable"))
    return (
        1.0 if since < stable else _cosine(min(1.0, (since - stable) / (left - stable)), number_of(settings, "floor"))
    )


def _rates(rate: Callable[[float, float, Settings], float]) -> Callable[[Batch, Settings], Tensor]:
    """Make the formula: ``[B]``, the rate of each update; row ``k`` of the batch is update ``k``."""

    def of_updates(batch: Batch, settings: Settings) -> Tensor:
        rates = [_after_warm_up(k, settings, lambda s, n: rate(s, n, settings)) for k in range(batch.rows)]
        return torch.tensor(rates, dtype=torch.float64)

    return of_updates


#: Algorithm -> the learning rate of each update. Settings: ``warm_up`` and ``updates`` are counts,
#: ``floor`` is a fraction of the peak, ``stable`` a share of the updates after the warm-up.
RATES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "constant after warm-up": _rates(lambda _since, _left, _settings: 1.0),
    "cosine after warm-up": _rates(lambda since, left, s: _cosine(since / left, number_of(s, "floor"))),
    "stable after warm-up, then cosine": _rates(_stable),
}
