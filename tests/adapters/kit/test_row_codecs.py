"""Codecs of objects of which there is one per response, each on the first row of a batch."""

from typing import Any

import pytest
import torch

from adapters.kit.by_hand import BATCH
from rl_sentinel.adapters.kit.row_codecs import Cell, HasLabel, RowLength, RowTokens
from rl_sentinel.core.batch import take_rows
from rl_sentinel.core.codec import Codec, Inputs, Sizes

ROWS = [take_rows(BATCH, torch.tensor([row])) for row in (0, 1)]


@pytest.mark.parametrize(
    ("codec", "row", "value", "columns", "length"),
    [
        (Cell("reward"), 0, 1.5, {"reward": [1.5]}, None),
        (Cell("step", "int"), 1, 4, {"step": [4]}, None),
        (Cell("last_step", "bool"), 1, False, {"last_step": [False]}, None),
        (HasLabel("step", 4), 0, False, {"step": [0]}, None),
        (HasLabel("step", 4), 1, True, {"step": [4]}, None),
        (RowLength(), 0, 3, {}, 3),
        (RowTokens("logprob"), 1, [-4.0], {"logprob": [[-4.0, 0.0, 0.0]]}, 1),
        (RowTokens("token", "int"), 0, [5, 6, 7], {"token": [[5, 6, 7]]}, 3),
        (RowTokens("mask", "int"), 0, [1, 0, 1], {"mask": [[True, False, True]]}, 3),
    ],
)
def test_a_row(codec: Codec, row: int, value: object, columns: dict[str, Any], length: int | None) -> None:
    """A Python value; the columns of one row, padded to the width of the batch."""
    assert codec.put(Inputs(ROWS[row])) == value
    told = codec.sizes(value)
    assert (None if told.length is None else told.length.tolist()) == (None if length is None else [length])
    read = codec.take(value, told.merge(Sizes(width=3)))
    assert {name: column.tolist() for name, column in read.items()} == columns
    assert {name: column.tolist() for name, column in codec.canonical(ROWS[row]).items()} == columns
