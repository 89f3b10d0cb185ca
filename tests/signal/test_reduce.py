"""Sums and means with explicit denominators, by hand."""

import pytest
import torch

from rl_sentinel.signal.reduce import Aggregation, Mode, aggregate, row_means, row_sums, selected

VALUES = torch.tensor([[1.0, 3.0, torch.nan], [8.0, torch.inf, 0.0], [5.0, 5.0, 5.0]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_masked_values_are_selected_away() -> None:
    """NaN and infinity off the mask become exactly 0, forward and backward."""
    values = VALUES.clone().requires_grad_()
    chosen = selected(values, mask=MASK)
    assert chosen.tolist() == [[1.0, 3.0, 0.0], [8.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(chosen.sum(), values)
    assert gradient.tolist() == MASK.float().tolist()


def test_rows() -> None:
    """A row without a trained token has sum and mean 0."""
    assert row_sums(VALUES, mask=MASK).tolist() == [4.0, 8.0, 0.0]
    assert row_means(VALUES, mask=MASK).tolist() == [2.0, 8.0, 0.0]


@pytest.mark.parametrize(
    ("mode", "denominator", "expected"),
    [
        ("token-mean", 3.0, 4.0),
        ("token-sum", 6.0, 2.0),
        ("sequence-mean-token-sum", 2.0, 6.0),
        ("sequence-mean-token-mean", 2.0, 5.0),
    ],
)
def test_aggregate(mode: Mode, denominator: float, expected: float) -> None:
    """Each mode on three tokens in two live rows."""
    assert aggregate(VALUES, mask=MASK, aggregation=Aggregation(mode, denominator)).item() == expected


@pytest.mark.parametrize("mode", ["token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum"])
def test_parts_add_up(mode: Mode) -> None:
    """With the denominator of the whole, parts add up to it; a part without trained tokens adds 0."""
    whole = Aggregation(mode, 4.0)
    parts = [aggregate(VALUES[i : i + 1], mask=MASK[i : i + 1], aggregation=whole) for i in range(3)]
    assert sum(parts) == aggregate(VALUES, mask=MASK, aggregation=whole)


@pytest.mark.parametrize("denominator", [0.0, -1.0, float("nan")])
def test_denominator_is_refused(denominator: float) -> None:
    """No count is 0 or below."""
    with pytest.raises(ValueError, match="expected a positive number: count trained tokens or live rows"):
        Aggregation("token-mean", denominator)
