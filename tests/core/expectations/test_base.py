"""Changes: what differs between two calls."""

import math

import torch

from rl_sentinel.core.expectations import Change, Finite, changed


def test_first_cell_that_differs() -> None:
    before = torch.tensor([[math.nan, 1.0], [2.0, 3.0]])
    after = torch.tensor([[math.nan, 1.0], [math.nan, 4.0]])
    change = changed("its reward", "reward", before, after)
    assert (change.column, change.cell, change.before, change.cells) == ("reward", (1, 0), 2.0, 2)
    assert math.isnan(change.after)
    assert changed("its reward", "reward", before, before) == Change("its reward", "reward")


def test_key_tells_expectations_of_one_output_apart() -> None:
    numbers = torch.zeros(1)
    assert [Finite("loss", numbers).name, Finite("loss", numbers, key="padding of loss").name] == [
        "loss",
        "padding of loss",
    ]
