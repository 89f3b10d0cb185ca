"""GSPO by hand."""

import math
from typing import Any

import pytest
import torch

from rl_sentinel.signal.loss.gspo import loss
from rl_sentinel.signal.reduce import Aggregation

MASK = torch.tensor([[True, True, False], [True, False, False]])
#: Log-ratios ln 4 and 0 in the first row, whose geometric mean is 2; ln 1/2 in the second.
LOGPROB = torch.tensor([[math.log(4.0), 0.0, torch.nan], [math.log(0.5), torch.nan, torch.nan]])
MEAN = Aggregation("sequence-mean-token-mean", 2.0)


def test_by_hand() -> None:
    """Ratios 2 and 1/2 of whole responses; each token of the first carries half of its gradient."""
    logprob = LOGPROB.clone().requires_grad_()
    weights = torch.tensor([[-1.0, -1.0, 0.0], [3.0, 0.0, 0.0]])
    found = loss(logprob, torch.zeros(2, 3), weights, mask=MASK, clip_low=0.9, clip_high=9.0, aggregation=MEAN)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert found.item() == pytest.approx((2.0 - 1.5) / 2)
    assert gradient.flatten().tolist() == pytest.approx([0.5, 0.5, 0.0, -0.75, 0.0, 0.0])


def test_a_response_is_cut_as_one() -> None:
    """Cut above for a positive advantage: no token of it trains, though one ratio alone is 1."""
    logprob = LOGPROB.clone().requires_grad_()
    weights = torch.ones(2, 3)
    found = loss(logprob, torch.zeros(2, 3), weights, mask=MASK, clip_low=0.2, clip_high=0.3, aggregation=MEAN)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert found.item() == pytest.approx(-(1.3 + 0.5) / 2)
    assert gradient.flatten().tolist() == pytest.approx([0.0, 0.0, 0.0, -0.25, 0.0, 0.0])


def test_the_gradient_is_that_of_the_response_ratio() -> None:
    torch.default_generator.manual_seed(0)
    logprob = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1]]).bool()
    advantage = torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64)
    old = torch.randn(3, 4, dtype=torch.float64)
    whole = torch.stack([((logprob - old)[b][mask[b]].mean()).exp() for b in range(3)])
    plain = -(torch.minimum(whole * advantage[:, 0], whole.clamp(0.7, 1.5) * advantage[:, 0])).mean()
    mean = Aggregation("sequence-mean-token-mean", 3.0)
    found = loss(logprob, old, advantage.expand(3, 4), mask=mask, clip_low=0.3, clip_high=0.5, aggregation=mean)
    slopes = [torch.autograd.grad(x, logprob)[0] for x in (plain, found)]
    assert found.item() == pytest.approx(plain.item())
    assert torch.allclose(slopes[0], slopes[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_one_ratio_whatever_the_tokens(dtype: torch.dtype) -> None:
    new = torch.tensor([[-0.5, -8.0, -30.0]], dtype=dtype)
    old = new - torch.tensor([[0.046875, 0.0, 0.0]], dtype=dtype)
    new.requires_grad_()
    given: dict[str, Any] = {"mask": torch.ones(1, 3, dtype=torch.bool), "aggregation": Aggregation("token-sum", 1.0)}
    cut = loss(new, old, torch.ones_like(old), clip_low=0.01, clip_high=0.01, **given)
    assert torch.autograd.grad(cut, new)[0].tolist() == [[0.0, 0.0, 0.0]]
    free = loss(new, old, torch.ones_like(old), clip_low=0.2, clip_high=0.2, **given)
    assert len(set(torch.autograd.grad(free, new)[0].flatten().tolist())) == 1
