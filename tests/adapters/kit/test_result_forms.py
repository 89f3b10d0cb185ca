"""Layouts of results, each on one value written by hand and read by the form and by its source."""

import pytest
import torch

from adapters.kit.by_hand import SIZES
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.result_forms import (
    Accepted,
    AsReturned,
    Detached,
    FirstOf,
    KeptMask,
    OffMask,
    RequiresGrad,
    RowSum,
    RowWise,
    Total,
)
from rl_sentinel.core.codec import Form

CELLS = torch.tensor([[1.0, 0.0, 2.0], [0.0, 5.0, 6.0]])
LEAF = torch.tensor([3.0], requires_grad=True)


@pytest.mark.parametrize(
    ("form", "value", "read", "scripted"),
    [
        (RowWise(Padded()), torch.tensor([[3.0], [4.0]]), [[3, 3, 3], [4, 0, 0]], [[3], [4]]),
        (RowWise(Padded()), CELLS, CELLS.tolist(), CELLS.tolist()),
        (AsReturned(), CELLS, CELLS.tolist(), CELLS.tolist()),
        (Accepted(), "anything", 1, 1),
        (KeptMask(Padded()), CELLS, [[1, 1, 1], [0, 1, 1]], [[1, 0, 1], [0, 1, 1]]),
        (OffMask(Padded(), 1.0), CELLS, [[1, 1, 2], [0, 1, 1]], CELLS.tolist()),
        (RequiresGrad(), LEAF, 1, 1),
        (RequiresGrad(), CELLS, 0, 0),
        (Detached(), LEAF.sum(), 3, 3),
        (Detached(), 2, 2, 2),
        (FirstOf("/kl"), {"other": 9.0, "actor/kl": 0.5}, 0.5, 0.5),
        (RowSum(), CELLS, [3, 11], [3, 11]),
        (Total(), [torch.tensor(1.0), torch.tensor(2.5)], 3.5, 3.5),
    ],
)
def test_a_result(form: Form, value: object, read: object, scripted: object) -> None:
    """Off the mask a script prints what the target returned."""
    assert form.read(value, SIZES).tolist() == read
    assert eval(form.source("x", SIZES), {"torch": torch, "x": value}).tolist() == scripted  # noqa: S307 - of a form
