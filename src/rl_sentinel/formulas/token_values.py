"""Formulas of token rewards and of rollout-correction weights per token, in plain loops."""

import math
from collections.abc import Callable, Mapping
from statistics import fmean

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.rejections import at_edge, bounds, kept, log_ratios
from rl_sentinel.formulas.rewards import overlong_penalty

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]


def _placed(batch: Batch, places: Tensor) -> Tensor:
    found = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b in range(batch.rows):
        ends = [t for t in range(batch.width) if bool(places[b, t])]
        if ends:
            found[b, ends[-1]] = float(batch.reward[b])
    return found


def _at_last_trained(batch: Batch, _settings: Settings) -> Named:
    return {"at the last trained token": _placed(batch, batch.mask)}


def _at_last(batch: Batch, _settings: Settings) -> Named:
    return {"at the last response token": _placed(batch, batch.valid)}


def _less_overlong(batch: Batch, settings: Settings) -> Named:
    """Add the length penalty to the reward of every response, whether or not the response is trained."""
    paid = [overlong_penalty(n, settings) for n in batch.length.tolist()]
    shaped = with_columns(batch, reward=batch.reward.double() + torch.tensor(paid, dtype=torch.float64))
    return _at_last(shaped, settings)


def _weight(ratio: float, low: float | None, high: float) -> float:
    """Truncate a weight at ``high``.

    If ``low`` is given, the weight is not truncated: it is 0 outside of both bounds, and NaN close to a bound.
    """
    if low is None:
        return min(ratio, high)
    return math.nan if at_edge(ratio, low, high) else ratio if low <= ratio <= high else 0.0


#: Level of a weight -> its log, from the log-ratio of a token and the log-ratios of its row.
_LEVELS: Mapping[str, Callable[[float, list[float]], float]] = {
    "token": lambda log_ratio, _row: log_ratio,
    "sequence": lambda _log_ratio, row: sum(row),
    "geometric": lambda _log_ratio, row: fmean(row),
}


def _sampler_weights(batch: Batch, settings: Settings) -> Named:
    """Truncated importance weights, or IcePop's masked weights: per token, or the product or geometric mean per row.

    With the setting ``normalized``, they are divided by their mean.

    Yao et al., Your Efficient RL Framework Secretly Brings You Off-Policy RL Training (2025), for the
    truncated weight; Every Step Evolves (arXiv 2510.18855) for the masked weight.
    """
    low, high = bounds(settings)
    found = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b, row in enumerate(log_ratios(batch)):
        for t, d in row.items():
            of = _LEVELS[str(settings["level"])](d, list(row.values()))
            found[b, t] = _weight(math.exp(of), low, high)
    if not settings.get("normalized"):
        return {"as it is": found}
    rows = torch.stack([found[b][batch.mask[b]][0] for b in range(batch.rows) if bool(batch.mask[b].any())])
    means = {"tokens": found[batch.mask].mean()} | ({"rows": rows.mean()} if settings["level"] == "sequence" else {})
    return {f"by the mean of {n}": found / mean for n, mean in means.items()}


#: A reward that needs the numbers of its penalty, which only an adapter can pass.
OVERLONG = "outcome less the overlong penalty at the last response token"

#: Algorithm -> values per token, by reading.
VALUES: Mapping[str, Callable[[Batch, Settings], Named]] = {
    "outcome at the last trained token": _at_last_trained,
    "outcome at the last response token": _at_last,
    OVERLONG: _less_overlong,
    "weight of the sampler": _sampler_weights,
    "kept against the sampler": lambda batch, settings: {"as it is": kept(batch, settings)},
}

#: The rewards in this table that a user can claim for a function: they need no other setting.
REWARDED = ("outcome at the last trained token", "outcome at the last response token")

#: The algorithms in this table with a value at every token of a response.
PLACED = (*REWARDED, OVERLONG)
