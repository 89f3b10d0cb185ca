"""DPPO by total variation, by hand."""

import math
from typing import Any

import pytest
import torch

from rl_sentinel.signal.loss.dppo_tv import loss
from rl_sentinel.signal.reduce import Aggregation

ONE = Aggregation("token-sum", 1.0)
BOUNDS: dict[str, Any] = {"clip_low": 0.1, "clip_high": 0.3, "ceiling": 3.0, "aggregation": ONE}


def _slope(now: float, before: float, advantage: float) -> float:
    """The gradient to the log-prob of one token, beside a masked one with anything in it."""
    logprob = torch.tensor([[math.log(now), torch.nan]], requires_grad=True)
    old, mask = torch.tensor([[math.log(before), torch.nan]]), torch.tensor([[True, False]])
    found = loss(logprob, old, torch.tensor([[advantage, torch.nan]]), mask=mask, **BOUNDS)
    (slope,) = torch.autograd.grad(found, logprob)
    assert slope[0, 1] == 0
    return float(slope[0, 0])


@pytest.mark.parametrize(
    ("now", "before", "advantage", "weight"),
    [
        (0.6, 0.5, 1.0, 1.2),
        (0.45, 0.5, -1.0, 0.9),
        (0.75, 0.5, 1.0, 1.5),
        (0.35, 0.5, -1.0, 0.0),
        (0.9, 0.5, 1.0, 0.0),
        (0.9, 0.5, -1.0, 1.8),
        (0.1, 0.5, -1.0, 0.0),
        (0.1, 0.5, 1.0, 0.2),
        (0.25, 0.05, 1.0, 3.0),
    ],
)
def test_dropped_and_kept(now: float, before: float, advantage: float, weight: float) -> None:
    assert _slope(now, before, advantage) == pytest.approx(-advantage * weight, rel=1e-5)


def test_value() -> None:
    found = loss(
        torch.tensor([[math.log(0.5)]]),
        torch.tensor([[math.log(0.4)]]),
        torch.tensor([[2.0]]),
        mask=torch.tensor([[True]]),
        **BOUNDS,
    )
    assert found.item() == pytest.approx(-2.0 * 1.25 * math.log(0.5))


def test_ceiling_is_named() -> None:
    """A ceiling of 1 holds every risen token."""
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"ceiling is 1\.0, expected a number above 1"):
        loss(one, one, one, mask=one == 0, clip_low=0.1, clip_high=0.1, ceiling=1.0, aggregation=ONE)
