"""Distances and cells."""

import math

import torch

from rl_sentinel.core.expectations.measuring import at_positions, first_cell, largest, literal, rounding


def test_largest() -> None:
    assert largest(torch.tensor([1.0, -2.0])) == 2.0
    assert largest(torch.tensor([1.0, math.nan])) == math.inf


def test_rounding_is_that_of_the_coarsest_type() -> None:
    """Float64 is held to float32, since inputs were float32."""
    wide, narrow = torch.zeros(1).double(), torch.zeros(1).bfloat16()
    assert rounding(1.0, wide) == 64 * torch.finfo(torch.float32).eps * 1.001
    assert rounding(1.0, wide, narrow) == 64 * torch.finfo(torch.bfloat16).eps * 1.001


def test_first_cell() -> None:
    assert first_cell(torch.tensor([[False, False], [True, True]])) == (1, 0)
    assert first_cell(torch.zeros(2, 2).bool()) == (0, 0)
    assert first_cell(torch.tensor(data=True)) == ()


def test_source() -> None:
    assert at_positions(torch.tensor([True, True]), torch.zeros(2)) == ""
    assert at_positions(torch.tensor([[True], [False]]), torch.zeros(2, 1)) == "[torch.tensor([[True], [False]])]"
    assert literal(torch.tensor([math.inf, 1.0])) == '[float("inf"), 1.0]'
