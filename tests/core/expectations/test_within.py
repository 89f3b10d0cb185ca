"""Every number lies within its bounds."""

import math

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.expectations import Within

ZERO, ONE = torch.zeros(2), torch.ones(2)


@pytest.mark.parametrize(
    ("low", "high", "strict", "words"),
    [
        (ONE, None, False, "at least 1"),
        (ONE, None, True, "above 1"),
        (None, -ONE, False, "at most -1"),
        (None, ZERO, True, "below 0"),
        (ONE, 2 * ONE, False, "between 1 and 2"),
    ],
)
def test_sentence(low: Tensor | None, high: Tensor | None, strict: bool, words: str) -> None:
    within = Within("ratio", torch.zeros(2), low, high, strict=strict, reason="why")
    assert within.sentence() == f"ratio is 0 at row 0, expected {words}: why"
    assert within.exact == strict


def test_a_bound_that_is_no_number_is_not_shown() -> None:
    """A number is expected there, of another call too."""
    nan = torch.full((2,), math.nan)
    assert (
        Within("x", nan, nan, None, between_calls=True).sentence()
        == "x is NaN at row 0, expected a number in both calls"
    )
    assert Within("x", nan, None, nan).sentence() == "x is NaN at row 0, expected a number"


def test_measure() -> None:
    rounding = Within("x", ONE * 1e-7, None, ZERO, scale=1.0).measure()
    assert rounding is not None
    assert 0 < rounding.distance < rounding.allowed
    assert Within("x", ZERO, ZERO, None, strict=True).measure() == (1.0, 0.0)
    assert Within("x", torch.tensor([math.nan]), None, None).measure() == (math.inf, 0.001 * rounding.allowed / 1.001)
    infinite = Within("x", torch.tensor([math.inf]), ZERO[:1], None).measure()
    assert infinite is not None
    assert infinite.distance == 0.0
    assert Within("x", ZERO, ONE, None, torch.tensor([False, False])).measure() is None


def test_bounds_may_differ_from_cell_to_cell() -> None:
    within = Within(
        "x", torch.tensor([1.0, -1.0, -1.0]), torch.tensor([-2.0, 0.0, 0.0]), None, torch.tensor([1, 1, 0]) > 0
    )
    assert within.broken().tolist() == [False, True, False]


def test_lower_bound_of_another_call() -> None:
    """A script compares with the other call; other bounds are written as numbers."""
    other = Within("x", ZERO, ONE, None, between_calls=True)
    assert other.pairs()[0].expected is ONE
    assert "observed) >= expected" in other.assertion("observed", "expected")
    fixed = Within("x", ZERO, ONE, None)
    assert fixed.pairs()[0].expected is None
    assert "expected" not in fixed.assertion("observed", "expected")
