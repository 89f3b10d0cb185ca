"""The unclipped ratio by hand."""

import math

import pytest
import torch

from rl_sentinel.signal.loss.importance_sampling import loss
from rl_sentinel.signal.reduce import Aggregation


def test_by_hand() -> None:
    """Ratios 5 and 1/2, both whole, with advantages 1 and -2; the third is not trained."""
    logprob = torch.tensor([[math.log(5.0), math.log(0.5), torch.nan]], requires_grad=True)
    mask, weights = torch.tensor([[True, True, False]]), torch.tensor([[1.0, -2.0, torch.nan]])
    found = loss(logprob, torch.zeros(1, 3), weights, mask=mask, aggregation=Aggregation("token-mean", 2.0))
    (gradient,) = torch.autograd.grad(found, logprob)
    assert found.item() == pytest.approx(-(5.0 - 1.0) / 2)
    assert gradient.flatten().tolist() == pytest.approx([-2.5, 0.5, 0.0])
