"""GMPO by hand."""

import math

import pytest
import torch

from rl_sentinel.signal.loss.gmpo import loss
from rl_sentinel.signal.reduce import Aggregation

MASK = torch.tensor([[True, True, False], [True, True, False]])
MEAN = Aggregation("sequence-mean-token-mean", 2.0)


def test_by_hand() -> None:
    """Log-ratios 1 and 0.1, cut above at 0.5 with positive advantages; -1 and 0.1, cut below at -0.4 with negative."""
    logprob = torch.tensor([[1.0, 0.1, torch.nan], [-1.0, 0.1, torch.nan]], requires_grad=True)
    weights = torch.tensor([[1.0, 3.0, torch.nan], [-1.0, -1.0, torch.nan]])
    found = loss(logprob, torch.zeros(2, 3), weights, mask=MASK, clip_low=0.4, clip_high=0.5, aggregation=MEAN)
    (gradient,) = torch.autograd.grad(found, logprob)
    up, down = 2 * math.exp(0.6 / 2), math.exp(-0.3 / 2)
    assert found.item() == pytest.approx((-up + down) / 2)
    assert gradient.flatten().tolist() == pytest.approx([0.0, -up / 4, 0.0, 0.0, down / 4, 0.0])


def test_nothing_trained() -> None:
    """Without a trained token the loss is 0, with gradient 0."""
    logprob = torch.zeros(2, 3, requires_grad=True)
    nobody, zeros = torch.zeros(2, 3, dtype=torch.bool), torch.zeros(2, 3)
    found = loss(logprob, zeros, zeros + 1, mask=nobody, clip_low=0.4, clip_high=0.4, aggregation=MEAN)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert (found.item(), gradient.abs().sum().item()) == (0.0, 0.0)
