"""A batch is total, and rows and positions are taken from all columns at once."""

import pytest
import torch

from rl_sentinel.core.batch import COLUMNS, batch_of, columns, take_positions, take_rows


def test_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_of\[rewards\] is not a column"):
        batch_of(torch.ones(1, 1), rewards=torch.zeros(1))


def test_live_and_valid() -> None:
    batch = batch_of(torch.tensor([[1, 0, 0], [0, 0, 0]]), length=torch.tensor([2, 3]))
    assert batch.live.tolist() == [True, False]
    assert batch.valid.tolist() == [[True, True, False], [True, True, True]]


def test_taking_positions_keeps_lengths_true() -> None:
    batch = batch_of(torch.tensor([[1, 1, 0], [1, 1, 1]]), length=torch.tensor([2, 3]))
    taken = take_positions(batch, torch.tensor([1, 2]))
    assert taken.length.tolist() == [1, 2]
    assert taken.mask.tolist() == [[True, False], [True, True]]


def test_rows_may_be_taken_twice() -> None:
    batch = batch_of(torch.ones(2, 1), reward=torch.tensor([1.0, 2.0]))
    taken = take_rows(batch, torch.tensor([1, 1, 0]))
    assert taken.reward.tolist() == [2, 2, 1]
    assert all(getattr(taken, name).shape[0] == 3 for name in COLUMNS)


def test_columns_by_axes_and_role() -> None:
    assert columns(axes="B", role="signal") == ("reward", "reward_baseline")
