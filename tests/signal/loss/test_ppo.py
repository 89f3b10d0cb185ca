"""PPO's clipped loss by hand."""

import math

import pytest
import torch
from torch import Tensor

from rl_sentinel.signal.loss.ppo import loss
from rl_sentinel.signal.reduce import Aggregation

MASK = torch.tensor([[True, True, True, False]])
LOG_RATIO = torch.tensor([[math.log(1.5), math.log(0.5), math.log(1.1), torch.nan]])


def _loss(logprob: Tensor, advantage: Tensor) -> Tensor:
    old, one = torch.zeros_like(logprob), Aggregation("token-mean", 3.0)
    return loss(logprob, old, advantage, mask=MASK, clip_low=0.2, clip_high=0.3, aggregation=one)


@pytest.mark.parametrize(
    ("advantage", "gain"),
    [
        (1.0, 1.3 + 0.5 + 1.1),  # cut above; below, the smaller is the ratio itself
        (-1.0, -1.5 - 0.8 - 1.1),  # above, the smaller is the ratio itself; cut below
    ],
)
def test_by_hand(advantage: float, gain: float) -> None:
    """Three tokens with ratios 1.5, 0.5 and 1.1; the fourth is not trained."""
    weights = torch.tensor([[advantage, advantage, advantage, torch.nan]])
    assert _loss(LOG_RATIO, weights).item() == pytest.approx(-gain / 3)


def test_gradient() -> None:
    """A cut token has none; the others minus the ratio times the advantage; off the mask exactly 0."""
    logprob = LOG_RATIO.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(_loss(logprob, torch.ones(1, 4)), logprob)
    assert gradient.flatten().tolist() == pytest.approx([0.0, -0.5 / 3, -1.1 / 3, 0.0])


def test_nothing_trained() -> None:
    """Without a trained token the loss is 0, with gradient 0."""
    logprob = torch.zeros(1, 2, requires_grad=True)
    zeros, nobody = torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool)
    one = Aggregation("token-mean", 1.0)
    found = loss(logprob, zeros, zeros, mask=nobody, clip_low=0.2, clip_high=0.2, aggregation=one)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert (found.item(), gradient.tolist()) == (0.0, [[0.0, 0.0]])
