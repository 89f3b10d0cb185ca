"""Expectations: conditions that a law states on the results of a boundary."""

from rl_sentinel.core.expectations.answers import Answers, Listed
from rl_sentinel.core.expectations.base import Change, Expectation, Measured, Pair, changed
from rl_sentinel.core.expectations.equal import Equal
from rl_sentinel.core.expectations.finite import Finite
from rl_sentinel.core.expectations.moves import Moves
from rl_sentinel.core.expectations.refuses import Attempt, Refuses
from rl_sentinel.core.expectations.within import Within

__all__ = (
    "Answers",
    "Attempt",
    "Change",
    "Equal",
    "Expectation",
    "Finite",
    "Listed",
    "Measured",
    "Moves",
    "Pair",
    "Refuses",
    "Within",
    "changed",
)
