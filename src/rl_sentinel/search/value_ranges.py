"""The valid range of each column: values that a model, a sampler or a count can produce."""

import math
from collections.abc import Iterator, Mapping

from rl_sentinel.core.batch import COLUMNS, Batch, with_columns

#: Column -> least and largest number. A probability is at most 1, an entropy at least 0, and a sum of squared
#: probabilities at most 1. Rewards, values, advantages and logits can be any number.
DOMAINS: Mapping[str, tuple[float, float]] = {
    **{name: (-math.inf, 0.0) for name in COLUMNS if name.endswith("logprob")},
    "entropy": (0.0, math.inf),
    "pi_squared": (0.0, 1.0),
}

#: Log-probs of one token under several policies: only their differences matter.
_LOGPROBS = tuple(name for name in DOMAINS if name.endswith("logprob"))


def inside(column: str, number: float) -> bool:
    """Whether a number is in a column's range.

    Example:
        >>> inside("logprob", 1.0), inside("logprob", -1.0), inside("reward", 1.0)
        (False, True, True)
    """
    low, high = DOMAINS.get(column, (-math.inf, math.inf))
    return low <= number <= high


def outside(batch: Batch) -> int:
    """The number of cells of a batch that are outside of the range of their column."""
    count = 0
    for name, (low, high) in DOMAINS.items():
        column = getattr(batch, name)
        count += int(((column < low) | (column > high)).sum())
    return count


def brought_inside(batch: Batch) -> Iterator[Batch]:
    """Similar batches with all cells in range; empty if all cells of the batch are in range.

    In the first batch, each out-of-range cell has the nearest number in range. If a log-prob is above 0, all log-probs
    of a second batch are lowered by one integer, which keeps their differences.
    """
    if not outside(batch):
        return
    clamped = {name: getattr(batch, name).clamp(low, high) for name, (low, high) in DOMAINS.items()}
    yield with_columns(batch, **clamped)
    highest = max(float(getattr(batch, name).max()) for name in _LOGPROBS)
    if highest > 0:
        lowered = {name: getattr(batch, name) - math.ceil(highest) for name in _LOGPROBS}
        yield with_columns(batch, **{**clamped, **lowered})
