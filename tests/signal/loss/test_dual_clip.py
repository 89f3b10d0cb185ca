"""The second bound by hand."""

import math
from functools import partial

import pytest
import torch

from rl_sentinel.signal.loss import ppo
from rl_sentinel.signal.loss.dual_clip import loss
from rl_sentinel.signal.reduce import Aggregation

ONE = Aggregation("token-sum", 1.0)
MASK = torch.tensor([[True, True, True, False]])
LOGPROB = torch.tensor([[math.log(5.0), math.log(2.0), math.log(0.5), torch.nan]])
PPO = partial(ppo.loss, mask=MASK, clip_low=0.2, clip_high=0.3, aggregation=ONE)
DUAL = partial(loss, mask=MASK, clip_low=0.2, clip_high=0.3, aggregation=ONE)


def test_by_hand() -> None:
    """Ratios 5, 2 and 1/2 with advantage -1: held at 3, the ratio itself, cut below."""
    weights = torch.tensor([[-1.0, -1.0, -1.0, torch.nan]])
    found = DUAL(LOGPROB, torch.zeros(1, 4), weights, ceiling=3.0)
    assert found.item() == pytest.approx(3.0 + 2.0 + 0.8)


def test_gradient() -> None:
    """A token that is held has none; one between the bounds has its ratio; off the mask exactly 0."""
    logprob = LOGPROB.clone().requires_grad_()
    found = DUAL(logprob, torch.zeros(1, 4), -torch.ones(1, 4), ceiling=3.0)
    (gradient,) = torch.autograd.grad(found, logprob)
    assert gradient.flatten().tolist() == pytest.approx([0.0, 2.0, 0.0, 0.0])


def test_positive_advantages_are_those_of_ppo() -> None:
    given = (LOGPROB, torch.zeros(1, 4), torch.ones(1, 4))
    found = DUAL(*given, ceiling=1.01)
    assert found.item() == PPO(*given).item()


def test_a_ceiling_that_stops_every_token_is_refused() -> None:
    given = (LOGPROB, torch.zeros(1, 4), torch.ones(1, 4))
    with pytest.raises(ValueError, match=r"^ceiling is 1\.0, expected a number above 1$"):
        DUAL(*given, ceiling=1.0)
