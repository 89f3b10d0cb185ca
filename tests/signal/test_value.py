"""The critic's loss, by hand."""

from typing import Any

import pytest
import torch

from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.value import value_loss

FOUR = Aggregation("token-mean", 4.0)


def test_larger_of_two_errors() -> None:
    """Moved towards the returns past its range: the error of the held value, without gradient; else the plain one."""
    value = torch.tensor([[2.0, 0.25, -3.0, 0.0, torch.nan]], requires_grad=True)
    old, returns = torch.tensor([[0.0, 0.0, 0.0, 0.0, torch.nan]]), torch.tensor([[2.0, 1.0, 1.0, 1.0, torch.nan]])
    mask = torch.tensor([[True, True, True, True, False]])
    found = value_loss(value, old, returns, mask=mask, value_clip=0.5, aggregation=FOUR)
    assert found.item() == (1.5**2 + 0.75**2 + 4.0**2 + 1.0) / 2 / 4
    (slope,) = torch.autograd.grad(found, value)
    assert slope.tolist() == [[0.0, -0.75 / 4, -1.0, -0.25, 0.0]]


def test_plain_error() -> None:
    value, old = torch.tensor([[9.0]]), torch.zeros(1, 1)
    one: dict[str, Any] = {"mask": torch.tensor([[True]]), "aggregation": FOUR}
    assert value_loss(value, old, old, value_clip=float("inf"), **one).item() == 81 / 8
    with pytest.raises(ValueError, match="value_clip is 0, expected a number above 0"):
        value_loss(value, old, old, value_clip=0, **one)
