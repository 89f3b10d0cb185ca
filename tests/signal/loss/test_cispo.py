"""CISPO by hand."""

import math

import pytest
import torch

from rl_sentinel.signal.loss.cispo import loss
from rl_sentinel.signal.reduce import Aggregation

ONE = Aggregation("token-sum", 1.0)
MASK = torch.tensor([[True, True, True, False]])
OLD = torch.tensor([[-1.0, -1.0, -1.0, torch.nan]])
LOGPROB = OLD + torch.tensor([[math.log(2.0), math.log(0.5), math.log(1.1), 0.0]])
WEIGHTS = torch.tensor([[1.0, -1.0, 2.0, torch.nan]])


def test_by_hand() -> None:
    """Weights 1.3, 0.8 and 1.1 of ratios 2, 1/2 and 1.1; each token keeps a gradient, the cut ones too."""
    logprob = LOGPROB.clone().requires_grad_()
    found = loss(logprob, OLD, WEIGHTS, mask=MASK, clip_low=0.2, clip_high=0.3, aggregation=ONE)
    (gradient,) = torch.autograd.grad(found, logprob)
    steps = [-1 + math.log(2.0), -1 + math.log(0.5), -1 + math.log(1.1)]
    assert found.item() == pytest.approx(-(1.3 * steps[0] - 0.8 * steps[1] + 2 * 1.1 * steps[2]))
    assert gradient.flatten().tolist() == pytest.approx([-1.3, 0.8, -2.2, 0.0])


def test_unbounded_below() -> None:
    """With a low clip of 1 the ratio itself counts below 1."""
    logprob = LOGPROB.clone().requires_grad_()
    found = loss(logprob, OLD, WEIGHTS, mask=MASK, clip_low=1.0, clip_high=4.0, aggregation=ONE)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert gradient.flatten().tolist() == pytest.approx([-2.0, 0.5, -2.2, 0.0])
