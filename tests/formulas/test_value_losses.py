"""Losses of a critic and entropies, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.value_losses import VALUE_LOSSES, at_bound, entropy


@pytest.mark.parametrize(
    ("value", "returns", "expected", "slope"),
    [
        (2.0, 3.0, 4.0, 0.0),  # held at 1: the larger error is the held one's, and it does not move
        (2.0, 0.0, 4.0, 4.0),  # held at 1: its own error is larger
        (0.25, 1.0, 0.5625, -1.5),  # within the range
    ],
)
def test_clipped(value: float, returns: float, expected: float, slope: float) -> None:
    """The old value is 0, and the range 1."""
    leaf = torch.tensor([[value]], requires_grad=True)
    batch = batch_of(torch.tensor([[True]]), value=leaf, returns=torch.tensor([[returns]]))
    found = VALUE_LOSSES["clipped value"](batch, {"value_clip": 1.0})
    assert found["the square"].item() == pytest.approx(expected)
    assert found["half the square"].item() == pytest.approx(expected / 2)
    assert torch.autograd.grad(found["the square"].sum(), leaf)[0].item() == pytest.approx(slope)


def test_squared() -> None:
    batch = batch_of(torch.tensor([[True]]), value=torch.tensor([[3.0]]), old_value=torch.tensor([[9.0]]))
    assert VALUE_LOSSES["squared value"](batch, {})["half the square"].item() == pytest.approx(4.5)


def test_at_bound() -> None:
    batch = batch_of(torch.ones(1, 3).bool(), value=torch.tensor([[0.5, -0.5, 0.25]]))
    assert at_bound(batch, {"value_clip": 0.5}).tolist() == [[True, True, False]]


def test_entropy() -> None:
    batch = batch_of(torch.ones(1, 2).bool(), logits=torch.tensor([[[0.0, 0.0, -30.0], [7.0, 7.0, 7.0]]]))
    assert entropy(batch)["entropy"][0].tolist() == pytest.approx([math.log(2), math.log(3)])


def test_loss_of_ppo_is_clipped_where_there_is_a_range() -> None:
    columns = {"value": torch.tensor([[3.0]]), "old_value": torch.zeros(1, 1), "returns": torch.tensor([[3.0]])}
    batch = batch_of(mask=torch.ones(1, 1, dtype=torch.bool), **columns)
    of_ppo = VALUE_LOSSES["ppo value"]
    assert of_ppo(batch, {})["the square"].item() == 0.0
    assert of_ppo(batch, {"value_clip": 1.0})["the square"].item() == 4.0  # held at 1


def test_loss_of_ppo_may_be_of_the_clipped_value_alone() -> None:
    """A value of 3 beside an old one of 1 is clipped to 2 by a range of 1; the return is 1.5."""
    columns = {"value": torch.tensor([[3.0]]), "old_value": torch.ones(1, 1), "returns": torch.tensor([[1.5]])}
    found = VALUE_LOSSES["ppo value"](batch_of(mask=torch.ones(1, 1, dtype=torch.bool), **columns), {"value_clip": 1.0})
    assert {name: x.item() for name, x in found.items()} == {
        "half the square": 1.125,
        "the square": 2.25,
        "half of the clipped one alone": 0.125,
        "the clipped one alone": 0.25,
    }
