"""REINFORCE by hand."""

import pytest
import torch

from rl_sentinel.signal.loss.reinforce import loss
from rl_sentinel.signal.reduce import Aggregation


def test_by_hand() -> None:
    """Log-probs -1 and -3 with advantages 2 and -1; the third is not trained."""
    logprob = torch.tensor([[-1.0, -3.0, torch.nan]], requires_grad=True)
    mask, weights = torch.tensor([[True, True, False]]), torch.tensor([[2.0, -1.0, torch.nan]])
    found = loss(logprob, weights, mask=mask, aggregation=Aggregation("token-mean", 2.0))
    (gradient,) = torch.autograd.grad(found, logprob)
    assert found.item() == pytest.approx((2.0 - 3.0) / 2)
    assert gradient.flatten().tolist() == pytest.approx([-1.0, 0.5, 0.0])
