"""Sums by doubling are those of the loop."""

import pytest
import torch

from rl_sentinel.signal.kernels import doubling, sizes
from rl_sentinel.signal.scan import discounted_suffix_sums


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("width", [0, 1, 2, 9, 33])
def test_suffix_sums(width: int, discount: float, monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(3, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    monkeypatch.setattr(sizes, "SUMS", 10**9)
    leaf, other = values.clone().requires_grad_(), values.clone().requires_grad_()
    loop, doubled = discounted_suffix_sums(leaf, discount=discount), doubling.suffix_sums(other, discount)
    torch.testing.assert_close(doubled, loop)
    weight = torch.randn_like(values)
    slope = torch.autograd.grad((loop * weight).sum(), leaf)[0]
    torch.testing.assert_close(torch.autograd.grad((doubled * weight).sum(), other)[0], slope)
    plain = torch.func.grad(lambda x: (doubling.suffix_sums(x, discount) * weight).sum())(values)
    torch.testing.assert_close(plain, slope)
