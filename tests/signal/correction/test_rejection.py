"""Rejection and veto by hand: log-ratios -1 and 0.5, then 0.2 and -0.1, then nothing trained."""

import math
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.correction.rejection import Estimator, Over, rows_kept, tokens_kept, vetoed

MASK = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
NEW = torch.tensor([[-1.0, 0.5, torch.nan], [0.2, -0.1, 9.0], [torch.inf, 0.0, 0.0]])
ZERO = torch.zeros(3, 3)

#: The estimates of both rows, by kind.
K3 = [[math.exp(-1) - 1 + 1, math.exp(0.5) - 1.5], [math.exp(0.2) - 1.2, math.exp(-0.1) - 0.9]]
ESTIMATES: dict[Estimator, list[list[float]]] = {
    "k1": [[1.0, -0.5], [-0.2, 0.1]],
    "k2": [[0.5, 0.125], [0.02, 0.005]],
    "k3": K3,
}


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("over", ["sum", "mean", "max"])
def test_rows(estimator: Estimator, over: Over) -> None:
    row = ESTIMATES[estimator][0]
    number = {"sum": sum(row), "mean": sum(row) / 2, "max": max(row)}[over]
    for high, first in ((number + 1e-4, True), (number - 1e-4, False)):
        kept = rows_kept(NEW, ZERO, mask=MASK, estimator=estimator, over=over, low=-9.0, high=high)
        assert kept.tolist() == [first, True, False]
    for low, first in ((number - 1e-4, True), (number + 1e-4, False)):
        kept = rows_kept(NEW, ZERO, mask=MASK, estimator=estimator, over=over, low=low, high=9.0)
        assert kept.tolist()[0] is first
        assert kept.tolist()[2] is False


def test_tokens() -> None:
    """Each by itself; between 0.01 and 0.2 of k2 there is one in each row."""
    kept = tokens_kept(NEW, ZERO, mask=MASK, estimator="k2", low=0.01, high=0.2)
    assert kept.tolist() == [[False, True, False], [True, False, False], [False, False, False]]


def test_bounds_are_kept() -> None:
    half, one = torch.tensor([[0.5]]), torch.ones(1, 1).bool()
    for low, high in ((-0.5, 0.0), (-9.0, -0.5)):
        assert tokens_kept(half, ZERO[:1, :1], mask=one, estimator="k1", low=low, high=high).tolist() == [[True]]


def test_veto() -> None:
    """The first row's worst ratio is exp(-1); an untrained token vetoes nothing."""
    assert vetoed(NEW, ZERO, mask=MASK, floor=0.36).tolist() == [True, True, False]
    assert vetoed(NEW, ZERO, mask=MASK, floor=0.37).tolist() == [False, True, False]
    assert vetoed(NEW + 5, ZERO, mask=MASK, floor=1.0).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"estimator": "k4"}, "estimator is 'k4', expected one of k1, k2, k3"),
        ({"over": "median"}, "over is 'median', expected one of sum, mean, max"),
        ({"low": 2.0}, "high is 1.0, expected 2.0 or more: it is the upper bound, and low the lower one"),
        ({"high": math.nan}, "high is nan, expected a number: a bound cannot be NaN"),
        ({"mask": MASK.float()}, None),
        ({"rollout_logprob": ZERO + math.nan}, None),
    ],
)
def test_refused(changed: dict[str, Any], message: str | None) -> None:
    """Words, bounds, kinds, and a trained token without a log-prob."""
    sound: dict[str, Any] = {"mask": MASK, "estimator": "k1", "over": "sum", "low": -1.0, "high": 1.0}
    with pytest.raises(InputError) as told:
        rows_kept(NEW, **{"rollout_logprob": ZERO, **sound, **changed})
    if message:
        assert str(told.value) == message


@pytest.mark.parametrize("floor", [0.0, 1.5, math.nan])
def test_floor_is_a_ratio(floor: float) -> None:
    """Above 0, at most 1."""
    with pytest.raises(InputError, match=r"^floor is .*, expected a number above 0 and at most 1$"):
        vetoed(NEW, ZERO, mask=MASK, floor=floor)
