"""Axes with which a user's function computes its claimed formula, where it runs with other axes, too."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import claims


def gae_over_steps(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """Steps are the first axis, as where environments step together."""
    advantages, after, next_value = torch.zeros_like(rewards), rewards[0] * 0, rewards[0] * 0
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * next_value - values[step]
        after = torch.where(mask[step] > 0, delta + gamma * lam * after, after)
        next_value = torch.where(mask[step] > 0, values[step], next_value)
        advantages[step] = after
    return advantages


def gae_over_tokens(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    return gae_over_steps(rewards.mT, values.mT, mask.mT, gamma, lam).mT


def centered_by_column(rewards: Tensor) -> Tensor:
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-6)


def described(function: Callable[..., Tensor], **stated: str) -> Boundary:
    target = live_target(function)
    return the_only(describe(target, target.path, Statement(stage="advantage", claims=claims("stated", **stated))))


@pytest.mark.parametrize(("function", "time_first"), [(gae_over_steps, True), (gae_over_tokens, False)])
def test_the_time_axis_is_found(function: Callable[..., Tensor], time_first: bool) -> None:
    notes = "\n".join(described(function, algorithm="gae").notes)
    assert ("values was passed as value[T B], with which the function computes gae" in notes) is time_first


def test_rewards_of_groups_are_found() -> None:
    notes = described(centered_by_column, algorithm="grpo").notes
    assert any("rewards was passed as reward[GK], with which the function computes grpo" in note for note in notes)


def test_nothing_is_changed_without_a_claim() -> None:
    assert not any("computes" in note for note in described(gae_over_steps).notes)
