"""Outputs of lists per column: the axes and units of the batch, read back from lists of unequal length."""

import torch

from rl_sentinel.adapters.kit.row_outputs import row_outputs
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Sizes

LISTS = {"tokens": [torch.tensor([3, 4]), torch.tensor([5])], "masks": [[1, 0], [1]], "rewards": [0.5, 1.0]}


def test_outputs_are_columns_of_the_batch() -> None:
    found = row_outputs(Use("rows"), "token", "mask", "reward")
    assert {name: (o.axes, o.unit, o.quantity) for name, o in found.items()} == {
        "token": ("B T", "", "token"),
        "mask": ("B T", "", "mask"),
        "reward": ("B", "reward", "reward"),
    }


def test_lists_are_read_with_padding() -> None:
    sizes = Sizes(rows=2, width=2, length=torch.tensor([2, 1]))
    read = {
        name: output.form.read(output.at.follow({"rows": LISTS}), sizes).tolist()
        for name, output in row_outputs(Use("rows"), "token", "mask", "reward").items()
        if output.form is not None and output.at is not None
    }
    assert read == {"token": [[3, 4], [5, 0]], "mask": [[True, False], [True, False]], "reward": [0.5, 1.0]}
