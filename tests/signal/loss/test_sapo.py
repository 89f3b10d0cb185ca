"""SAPO by hand."""

import math

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
    """One line: what, got, expected."""
    numbers = {"temperature": 1.0, "negative_temperature": 1.0} | {name: 0.0}
    zeros = torch.zeros(1, 3)
    with pytest.raises(ValueError, match=rf"^{name} is 0\.0, expected a number above 0"):
        loss(zeros, zeros, zeros, mask=MASK, aggregation=ONE, **numbers)
