"""Aggregation of numbers per token, by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.aggregation import aggregated

#: Seven trained tokens in four of five rows.
MASK = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1], [0, 0]]).bool()
NUMBERS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [2.0, 99.0], [3.0, 1.0], [77.0, 77.0]])

#: The prompt of five trained tokens has 3 + 7 + 2, that of two has 4; the third has none.
GROUP = torch.tensor([7, 7, 7, 2, 5])


@pytest.mark.parametrize(
    ("mode", "rows", "settings", "expected"),
    [
        ("token-mean", "", {}, [16 / 7]),
        ("token-mean", "", {"tokens": 8}, [2]),
        ("token-sum", "", {}, [16]),
        ("token-sum", "", {"length": 2}, [2, 1.6]),
        ("token-sum", "live", {"length": 2}, [2]),
        ("token-sum", "all", {"length": 2}, [1.6]),
        ("sequence-mean-token-sum", "live", {}, [4]),
        ("sequence-mean-token-sum", "all", {}, [3.2]),
        ("sequence-mean-token-mean", "", {}, [9 / 4, 9 / 5]),
        ("sequence-mean-token-mean", "live", {"rows": 18, "ranks": 2}, [1]),
        ("sequence-mean-token-sum-by-width", "live", {}, [2]),
        ("sequence-mean-token-sum-by-width", "live", {"scale": 8}, [0.5]),
        ("prompt-mean", "live", {}, [(12 / 5 + 2) / 2]),
        ("prompt-mean", "", {}, [(12 / 5 + 2) / 2, (12 / 5 + 2) / 3]),
    ],
)
def test_by_hand(mode: str, rows: str, settings: dict[str, int], expected: list[float]) -> None:
    """Row sums 3, 7, 2 and 4, row means 1.5, 3.5, 2 and 2; where no population is claimed, either is a reading."""
    found = aggregated(NUMBERS, batch_of(MASK, group=GROUP), mode, settings, rows)
    assert [x.item() for x in found.values()] == pytest.approx(expected)
