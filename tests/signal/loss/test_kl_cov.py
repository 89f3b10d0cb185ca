"""KL-Cov's loss, by hand."""

import torch

from rl_sentinel.signal.loss.kl_cov import loss
from rl_sentinel.signal.reduce import Aggregation

THREE = Aggregation("token-mean", 3.0)


def test_value_and_gradient() -> None:
    old = torch.tensor([[-1.0, -1.0, -1.0, torch.nan]])
    logprob = torch.tensor([[-1.5, -1.5, -1.0, torch.nan]], requires_grad=True)
    advantage = torch.tensor([[1.0, 1.0, 2.0, torch.nan]])
    mask = torch.tensor([[True, True, True, False]])
    chosen = torch.tensor([[True, False, False, True]])
    found = loss(logprob, old, advantage, mask=mask, chosen=chosen, penalty=4.0, aggregation=THREE)
    small = torch.tensor(-0.5).exp()
    torch.testing.assert_close(found, (2.0 - small - small - 2.0) / 3)
    (slope,) = torch.autograd.grad(found, logprob)
    torch.testing.assert_close(slope, torch.tensor([[-small - 4.0, -small, -2.0, 0.0]]) / 3)
