"""Sums and functions of rows in blocks; tests/signal/kernels/test_slopes.py compares the losses."""

import pytest
import torch
from draws import cases
from torch import Tensor

from rl_sentinel.signal.kernels import blocks, sizes
from rl_sentinel.signal.reduce import Aggregation, aggregate


def _squares(mask: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    value = torch.where(mask, x.exp() * weight, 0.0)
    return value, value


def test_gradients_to_other_columns() -> None:
    (x, *_) = cases(1, seed=5)
    new, gain = x.logprob.nan_to_num().requires_grad_(), x.advantage.nan_to_num().requires_grad_()
    by = Aggregation("token-mean", 4.0)
    value = blocks.summed(_squares, new, gain, mask=x.mask, aggregation=by)
    again = aggregate(new.exp() * gain, mask=x.mask, aggregation=by)
    torch.testing.assert_close(value, again)
    torch.testing.assert_close(torch.autograd.grad(value, (new, gain)), torch.autograd.grad(again, (new, gain)))


def test_no_gradient_is_kept_where_none_is_wanted() -> None:
    """A number without a graph, and 0 where there are no rows."""
    new, mask = torch.ones(2, 3), torch.ones(2, 3).bool()
    one = Aggregation("token-sum", 1.0)
    assert not blocks.summed(_squares, new, new, mask=mask, aggregation=one).requires_grad
    assert blocks.summed(_squares, new[:0], new[:0], mask=mask[:0], aggregation=one).item() == 0.0


def test_by_rows_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ROWS", 3)
    seen = []

    @blocks.by_rows
    def sums(values: Tensor, *, mask: Tensor, scale: float) -> Tensor:
        seen.append(len(values))
        return torch.where(mask, values, 0.0).sum(dim=1) * scale

    values, mask = torch.arange(10.0).view(5, 2), torch.tensor([[True, False]] * 5)
    assert sums(values, mask=mask, scale=2.0).tolist() == [0.0, 4.0, 8.0, 12.0, 16.0]
    assert seen == [1] * 5
