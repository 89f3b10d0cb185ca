"""Sums from the end by hand."""

import pytest
import torch

from rl_sentinel.signal.scan import discounted_suffix_sums, trained_first


@pytest.mark.parametrize("width", [1, 2, 31, 32, 65])
def test_counts(width: int) -> None:
    """Ones add up to the number of positions left; with discount 0 each stands alone."""
    ones = torch.ones(2, width)
    assert discounted_suffix_sums(ones, discount=1.0).tolist() == [[float(n) for n in range(width, 0, -1)]] * 2
    assert torch.equal(discounted_suffix_sums(ones, discount=0.0), ones)


def test_a_half_at_a_time() -> None:
    """A 1 at the end is halved at each position before, over every doubling."""
    width = 67
    values = torch.zeros(1, width, dtype=torch.float64)
    values[0, -1] = 1.0
    found = discounted_suffix_sums(values, discount=0.5)
    assert found[0].tolist() == [0.5 ** (width - 1 - t) for t in range(width)]


def test_gradient() -> None:
    values = torch.randn(2, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: discounted_suffix_sums(x, discount=0.9), (values,))
    lone = torch.ones(2, 1)
    discounted_suffix_sums(lone, discount=0.9).zero_()
    assert lone.tolist() == [[1.0], [1.0]]


def test_order() -> None:
    order = trained_first(mask=torch.tensor([[False, True, False, True], [True, True, False, False]]))
    assert order is not None
    assert order[:, :2].tolist() == [[1, 3], [0, 1]]
    assert trained_first(mask=torch.tensor([[True, False], [False, False]])) is None


def test_infinite_values_and_a_factor_of_nothing() -> None:
    """A factor of 0, or too small for its type, takes nothing of what follows, not even infinity."""
    values = torch.tensor([[1.0, torch.inf], [torch.inf, 2.0]])
    assert discounted_suffix_sums(values, discount=0.0).tolist() == values.tolist()
    wide = torch.zeros(1, 1024)
    wide[0, -1] = torch.inf
    assert not discounted_suffix_sums(wide, discount=0.5).isnan().any()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own
def test_derivatives_of_functions() -> None:
    values = torch.rand(2, 5, dtype=torch.float64)

    def squares(x: torch.Tensor) -> torch.Tensor:
        return discounted_suffix_sums(x, discount=0.9).square().sum()

    leaf = values.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(squares, (leaf,))
    (slope,) = torch.autograd.grad(squares(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(squares)(values), slope)
    torch.testing.assert_close(torch.func.jvp(squares, (values,), (values,))[1], (slope * values).sum())
    both = torch.vmap(lambda x: discounted_suffix_sums(x, discount=0.9))(torch.stack([values, 2 * values]))
    torch.testing.assert_close(both[1], discounted_suffix_sums(2 * values, discount=0.9))
