"""Clip-Cov's loss, by hand."""

from typing import Any

import torch

from rl_sentinel.signal.loss import ppo
from rl_sentinel.signal.loss.clip_cov import loss
from rl_sentinel.signal.reduce import Aggregation

FOUR = Aggregation("token-mean", 4.0)
BOUNDS: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.2, "aggregation": FOUR}


def test_value_and_gradient() -> None:
    old = torch.zeros(1, 5)
    logprob = torch.tensor([[0.1, 0.1, 1.0, 1.0, torch.nan]], requires_grad=True)
    advantage = torch.tensor([[1.0, 1.0, 1.0, 1.0, torch.nan]])
    mask = torch.tensor([[True, True, True, True, False]])
    chosen = torch.tensor([[True, False, True, False, True]])
    found = loss(logprob, old, advantage, mask=mask, chosen=chosen, **BOUNDS)
    near = torch.tensor(0.1).exp()
    torch.testing.assert_close(found, -(near + 1.2 + 1.2) / 4)
    (slope,) = torch.autograd.grad(found, logprob)
    torch.testing.assert_close(slope, torch.tensor([[0.0, -near / 4, 0.0, 0.0, 0.0]]))


def test_nothing_chosen_is_ppo() -> None:
    """Without a choice it is PPO's loss, on both sides of 1 and of 0."""
    old, mask = torch.zeros(1, 4), torch.ones(1, 4).bool()
    logprob, advantage = torch.tensor([[0.5, -0.5, 0.5, -0.5]]), torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    found = loss(logprob, old, advantage, mask=mask, chosen=~mask, **BOUNDS)
    assert found == ppo.loss(logprob, old, advantage, mask=mask, **BOUNDS)
    risen = loss(logprob, old, advantage, mask=mask, chosen=mask, **BOUNDS)
    torch.testing.assert_close(risen, torch.tensor((-1.2 + 0.8) / 4))
