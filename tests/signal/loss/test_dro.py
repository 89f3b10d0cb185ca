"""DRO's loss, by hand."""

import torch

from rl_sentinel.signal.loss.dro import loss
from rl_sentinel.signal.reduce import Aggregation


def test_value_and_gradient() -> None:
    """-A log pi + tau / 2 d^2; the gradient -A + tau d, bounded by no clip; nothing off the mask."""
    logprob = torch.tensor([[-1.0, -2.0, torch.nan]], requires_grad=True)
    old = torch.tensor([[-3.0, -2.0, torch.nan]])
    advantage, mask = torch.tensor([[1.0, -1.0, torch.nan]]), torch.tensor([[True, True, False]])
    found = loss(logprob, old, advantage, mask=mask, penalty=0.5, aggregation=Aggregation("token-mean", 2.0))
    assert found.item() == ((1.0 + 0.25 * 4.0) + (-2.0)) / 2
    (slope,) = torch.autograd.grad(found, logprob)
    assert slope.tolist() == [[(-1.0 + 0.5 * 2.0) / 2, 0.5, 0.0]]
