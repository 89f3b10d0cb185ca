"""Codecs of columns, each on one value written by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from adapters.kit.by_hand import BATCH, check_by_hand
from rl_sentinel.adapters.kit.codecs import Column, Labels, Lengths, PromptIds, ResponseMask, partition
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded, PerRow, Ragged
from rl_sentinel.core.codec import Codec, Inputs
from rl_sentinel.core.layout import Layout

LOGPROB = [[-1.0, -2.0, -3.0], [-4.0, -9.0, -9.0]]
GROUP = {"group": [0, 1]}


@pytest.mark.parametrize(
    ("codec", "value", "columns"),
    [
        (Column("logprob"), torch.tensor(LOGPROB), {"logprob": LOGPROB}),
        (
            Column("logprob", Ragged()),
            [torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([-4.0])],
            {"logprob": [[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]]},
        ),
        (Column("reward"), torch.tensor([1.5, -2.0]), {"reward": [1.5, -2.0]}),
        (
            Column("mask", dtype=torch.int64),
            torch.tensor([[1, 0, 1], [1, 0, 0]]),
            {"mask": [[True, False, True], [True, False, False]]},
        ),
        (PromptIds("strings"), np.array(["prompt-7", "prompt-3"], dtype=object), GROUP),
        (PromptIds("strings-list"), ["prompt-7", "prompt-3"], GROUP),
        (
            PromptIds("uuids"),
            np.array([f"00000000-0000-0000-0000-00000000000{n}" for n in (7, 3)], dtype=object),
            GROUP,
        ),
        (PromptIds("integers"), np.array([7, 3]), GROUP),
        (PromptIds("list"), [7, 3], GROUP),
        (PromptIds("tensor"), torch.tensor([7, 3]), GROUP),
        (Labels("last_step"), [True, False], {"last_step": [True, False]}),
    ],
)
def test_a_column(codec: Codec, value: object, columns: dict[str, Any]) -> None:
    """What is passed, and what is read from it."""
    check_by_hand(codec, value, columns, {})


@pytest.mark.parametrize(
    ("codec", "value", "name", "size"),
    [
        (Lengths("response"), [3, 1], "length", [3, 1]),
        (Lengths("prompt"), [1, 2], "prompt_length", [1, 2]),
        (Lengths("total", PerRow()), torch.tensor([4, 3]), "total_length", [4, 3]),
        (ResponseMask(), torch.tensor([[1, 1, 1], [1, 0, 0]]), "length", [3, 1]),
        (ResponseMask(AfterPrompt(1)), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), "length", [3, 1]),
    ],
)
def test_what_tells_a_length(codec: Codec, value: object, name: str, size: list[int]) -> None:
    """It carries no column."""
    check_by_hand(codec, value, {}, {})
    assert getattr(codec.sizes(value), name).tolist() == size


def test_a_mask_tells_itself_and_the_width() -> None:
    """Before other columns are read."""
    sizes = Column("mask").sizes(torch.tensor([[1, 0]]))
    assert (sizes.rows, sizes.width) == (1, 2)
    assert sizes.mask is not None
    assert sizes.mask.tolist() == [[True, False]]


def test_a_leaf_and_another_precision() -> None:
    """The target differentiates a leaf of its own; what a model computes has the precision of the layout."""
    inputs = Inputs(BATCH, layout=Layout(dtype="float64", extra=1))
    leaf = Column("logprob", Padded(), leaf=True).put(inputs)
    assert (leaf.dtype, leaf.shape, leaf.requires_grad) == (torch.float64, (2, 4), True)
    assert inputs.leaves[0][1].is_leaf
    assert Column("reward").put(inputs).dtype == torch.float32


def test_labels_are_numbered_in_order() -> None:
    """By their first rows."""
    assert partition(torch.tensor([9, 2, 9, 4])).tolist() == [0, 1, 0, 2]
