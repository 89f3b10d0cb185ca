"""Bounds on weights by hand, per token and per response."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.correction.bounds import clipped, masked, self_normalized, truncated

WEIGHT = torch.tensor([[0.25, 1.5], [torch.inf, torch.nan]])
MASK = torch.tensor([[True, True], [True, False]])


def test_by_hand() -> None:
    """What is infinite is bounded; what is off the mask is 0, and no bound lifts it."""
    assert truncated(WEIGHT, mask=MASK, high=2.0).tolist() == [[0.25, 1.5], [2.0, 0.0]]
    assert clipped(WEIGHT, mask=MASK, low=0.5, high=2.0).tolist() == [[0.5, 1.5], [2.0, 0.0]]
    assert masked(WEIGHT, mask=MASK, low=0.5, high=2.0).tolist() == [[0.0, 1.5], [0.0, 0.0]]
    assert masked(WEIGHT, mask=MASK, low=0.25, high=1.5).tolist() == [[0.25, 1.5], [0.0, 0.0]]


def test_of_rows() -> None:
    row, live = torch.tensor([4.0, 0.5, 8.0]), torch.tensor([True, True, False])
    assert truncated(row, mask=live, high=2.0).tolist() == [2.0, 0.5, 0.0]
    assert self_normalized(row, mask=live).tolist() == pytest.approx([4 / 2.25, 0.5 / 2.25, 0.0])


def test_mean_is_one() -> None:
    bounded = truncated(WEIGHT, mask=MASK, high=2.0)
    assert self_normalized(bounded, mask=MASK).sum().item() == pytest.approx(3.0)
    assert self_normalized(torch.zeros(2, 2), mask=MASK).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert self_normalized(WEIGHT, mask=torch.zeros_like(MASK)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_constant() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    assert not truncated(weight * 2, mask=MASK, high=2.0).requires_grad
    assert not self_normalized(weight * 2, mask=MASK).requires_grad


REFUSED: dict[str, Callable[[], Tensor]] = {
    "weight[1, 1] is nan, expected a ratio of 0 or more: it is the ratio of two probabilities": (
        lambda: truncated(WEIGHT, mask=torch.ones_like(MASK), high=2.0)
    ),
    "weight[0] is -1.0, expected a ratio of 0 or more: it is the ratio of two probabilities": (
        lambda: truncated(torch.tensor([-1.0]), mask=torch.tensor([True]), high=2.0)
    ),
    "weight has a mean that is not finite, expected bounded weights: truncate or mask them first": (
        lambda: self_normalized(WEIGHT, mask=MASK)
    ),
    "high is 0.0, expected a number above 0": lambda: truncated(WEIGHT, mask=MASK, high=0.0),
    "high is 0.1, expected 0.5 or more: it is the upper bound, and low the lower one": (
        lambda: clipped(WEIGHT, mask=MASK, low=0.5, high=0.1)
    ),
    "low is -0.5, expected a number of 0 or more": lambda: masked(WEIGHT, mask=MASK, low=-0.5, high=1.0),
    "weight has shape [2, 2, 1], expected 2 axes [B, T]: no tensor is broadcast": (
        lambda: truncated(WEIGHT.unsqueeze(2), mask=MASK.unsqueeze(2), high=2.0)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(InputError) as told:
        REFUSED[message]()
    assert str(told.value) == message
