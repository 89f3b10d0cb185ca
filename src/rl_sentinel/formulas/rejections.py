"""Rejection by the divergence between policy and sampler: the measure and the decision, in plain floats."""

import math
from collections.abc import Callable, Mapping
from statistics import fmean

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

#: A number closer than this to a bound may be on either side by rounding.
EDGE = 1e-4

#: Prefix of the settings of a second option (estimator and bounds); a kept token is within the bounds of both options.
SECOND = "second_"

_ESTIMATES: Mapping[str, Callable[[float], float]] = {
    "k1": lambda d: -d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: math.exp(d) - 1 - d,
}

_OVER: Mapping[str, Callable[[list[float]], float]] = {"sum": sum, "mean": fmean, "max": max, "min": min}


def log_ratios(batch: Batch) -> list[dict[int, float]]:
    """For each row, trained position -> log-ratio of the policy to the policy that sampled."""
    logprob, other = batch.logprob.tolist(), batch.rollout_logprob.tolist()
    trained = [[t for t, one in enumerate(row) if one] for row in batch.mask.tolist()]
    return [{t: logprob[b][t] - other[b][t] for t in ts} for b, ts in enumerate(trained)]


def bounds(settings: Settings, option: str = "") -> tuple[float | None, float]:
    """Settings ``{option}low`` (None if not a number) and ``{option}high`` (0 if None); ``option`` is a prefix."""
    low = settings.get(f"{option}low")
    return float(low) if isinstance(low, int | float) else None, float(settings[f"{option}high"] or 0)


def at_edge(x: float, *edges: float | None) -> bool:
    """Whether a number is so close to a bound that rounding decides on which side it is."""
    return any(e is not None and abs(x - e) < EDGE for e in edges)


def measured(batch: Batch, settings: Settings, option: str = "") -> Tensor:
    """``[B, T]``: a KL from the sampler to the policy, of each trained token or over its row; 0 elsewhere.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> batch = batch_of(torch.ones(1, 2, dtype=torch.bool), logprob=torch.tensor([[-1.0, -3.0]]))
        >>> measured(batch, {"estimator": "k1", "over": "sum"}).tolist()
        [[4.0, 4.0]]
    """
    found = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b, row in enumerate(log_ratios(batch)):
        one = {t: _ESTIMATES[str(settings[f"{option}estimator"])](d) for t, d in row.items()}
        over = settings.get(f"{option}over")
        for t, log_ratio in one.items():
            found[b, t] = _OVER[str(over)](list(one.values())) if over else log_ratio
    return found


def kept(batch: Batch, settings: Settings) -> Tensor:
    """``[B, T]``: 1 where the measure of every option is within its bounds, else 0; NaN near a bound.

    Untrained tokens have 1.
    """
    found = torch.ones(batch.mask.shape, dtype=torch.float64)
    for option in [n.removesuffix("estimator") for n in ("estimator", f"{SECOND}estimator") if n in settings]:
        low, high = bounds(settings, option)
        inside = [
            [math.nan if at_edge(x, low, high) else float((low is None or low <= x) and x <= high) for x in row]
            for row in measured(batch, settings, option).tolist()
        ]
        found = found * torch.where(batch.mask, torch.tensor(inside, dtype=torch.float64), 1.0)
    return found
