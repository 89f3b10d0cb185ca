"""Ratios that do not overflow have the gradients of plain operations; tests/signal/test_ratios.py has the others."""

import torch

from rl_sentinel.signal.kernels import overflow


def test_ratios_that_do_not_overflow() -> None:
    ratio, gain = torch.rand(2, 4, dtype=torch.float64).requires_grad_().unbind()
    ours, plain = overflow.weighed(overflow.exponential(ratio), gain), ratio.exp() * gain
    torch.testing.assert_close(ours, plain)
    both = [torch.autograd.grad(x.square().sum(), (ratio, gain), retain_graph=True) for x in (ours, plain)]
    torch.testing.assert_close(*both)
