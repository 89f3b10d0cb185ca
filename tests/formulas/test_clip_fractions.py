"""Clip fractions by hand: ratios of 1.5 and 0.5, and values held near the old ones."""

from math import log

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.clip_fractions import clip_range, clipped, dual_clipped, rows_clipped, values_clipped

RATIOS = {
    "logprob": torch.tensor([[log(1.5), log(0.5)]]),
    "advantage": torch.tensor([[1.0, 1.0]]),
}


def test_range_of_one_bound_or_of_two() -> None:
    assert clip_range({"clip": 0.2}) == (0.2, 0.2)
    assert clip_range({"clip_low": 0.2, "clip_high": 0.28}) == (0.2, 0.28)
    assert clip_range({"clip_low": 0.2}) is None


def test_tokens() -> None:
    """With a positive advantage only the ratio above the range is clipped."""
    found = clipped(batch_of(torch.ones(1, 2).bool(), **RATIOS), 0.2, 0.2)
    assert found["outside the range"].tolist() == [[1, 1]]
    assert found["where clipping binds"].tolist() == [[1, 0]]
    assert found["below, where it binds"].tolist() == [[0, 0]]


def test_ceiling_binds_on_a_negative_advantage() -> None:
    batch = batch_of(torch.ones(1, 2).bool(), **(RATIOS | {"advantage": torch.tensor([[-1.0, -1.0]])}))
    found = dual_clipped(batch, 1.4)
    assert found["where the ceiling binds"].tolist() == [[1, 0]]


def test_rows_by_their_geometric_mean() -> None:
    """The geometric mean of 1.5 and 0.5 is 0.87."""
    batch = batch_of(torch.ones(1, 2).bool(), **RATIOS)
    assert rows_clipped(batch, {"clip": 0.2})["rows outside the range"].tolist() == [0]
    assert rows_clipped(batch, {"clip": 0.1})["rows outside the range"].tolist() == [1]


def test_values() -> None:
    """Held at 1, the first value is farther from its return, the second one nearer."""
    batch = batch_of(torch.ones(1, 2).bool(), value=torch.tensor([[3.0, 3.0]]), returns=torch.tensor([[3.0, 0.0]]))
    found = values_clipped(batch, 1.0)
    assert found["outside the range"].tolist() == [[1, 1]]
    assert found["where the held error is larger"].tolist() == [[1, 0]]
