"""SAPO by hand."""

import math
from typing import Any

import pytest
import torch

from rl_sentinel.signal.loss.sapo import loss
from rl_sentinel.signal.reduce import Aggregation

ONE = Aggregation("token-sum", 1.0)
MASK = torch.tensor([[True, True, False]])


def test_by_hand() -> None:
    """Ratio 2 at steepness 1 with advantage 1, ratio 1/2 at steepness 2 with advantage -3."""
    logprob = torch.tensor([[math.log(2.0), math.log(0.5), torch.nan]], requires_grad=True)
    weights = torch.tensor([[1.0, -3.0, torch.nan]])
    found = loss(
        logprob,
        torch.zeros(1, 3),
        weights,
        mask=MASK,
        temperature=1.0,
        negative_temperature=2.0,
        aggregation=ONE,
    )
    (gradient,) = torch.autograd.grad(found, logprob)
    gate = 1 / (1 + math.exp(-1.0)), 1 / (1 + math.exp(1.0))
    assert found.item() == pytest.approx(-4 * gate[0] + 3 * 2 * gate[1])
    slope = [-4 * gate[0] * (1 - gate[0]) * 2.0, 3 * 4 * gate[1] * (1 - gate[1]) * 0.5]
    assert gradient.flatten().tolist() == pytest.approx([*slope, 0.0])


@pytest.mark.parametrize("name", ["temperature", "negative_temperature"])
def test_a_temperature_of_zero_is_refused(name: str) -> None:
    numbers = {"temperature": 1.0, "negative_temperature": 1.0} | {name: 0.0}
    zeros = torch.zeros(1, 3)
    with pytest.raises(ValueError, match=rf"^{name} is 0\.0, expected a number above 0"):
        loss(zeros, zeros, zeros, mask=MASK, aggregation=ONE, **numbers)


def test_in_double_precision() -> None:
    """4 / 1.05 sigmoid(1.05 (e^0.5 - 1)), to the last digits of a fake."""
    one = torch.zeros(1, 1, dtype=torch.float64)
    given: dict[str, Any] = {"mask": one == 0, "temperature": 1.0, "negative_temperature": 1.05}
    found = loss(one + 0.5, one, one - 1, aggregation=Aggregation("token-mean", 1.0), **given)
    expected = 4 / 1.05 / (1 + math.exp(-1.05 * (math.exp(0.5) - 1)))
    assert found.item() == pytest.approx(expected, rel=1e-14)
