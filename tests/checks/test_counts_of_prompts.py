"""A parameter that is the number of prompts is passed that number, not the number of responses of each."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError

_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "dr_grpo", "budget": 20}


def by_prompts(rewards: Tensor, num_prompts: int) -> Tensor:
    """Center the adjacent rewards of each prompt."""
    grouped = rewards.view(num_prompts, -1)
    return (grouped - grouped.mean(1, keepdim=True)).flatten()


def by_responses(rewards: Tensor, num_prompts: int) -> Tensor:
    """Take the number of prompts for that of the responses of each."""
    grouped = rewards.view(-1, num_prompts)
    return (grouped - grouped.mean(1, keepdim=True)).flatten()


def by_columns(rewards: Tensor, num_prompts: int) -> Tensor:
    """Center the rewards of each prompt, whose responses are as many rows apart as there are prompts."""
    turns = rewards.view(-1, num_prompts)
    return (turns - turns.mean(0, keepdim=True)).flatten()


def by_ids(rewards: Tensor, group_ids: Tensor, n_groups: int) -> Tensor:
    """Sum the rewards by id."""
    total = torch.zeros(n_groups).index_add_(0, group_ids, rewards)
    size = torch.zeros(n_groups).index_add_(0, group_ids, torch.ones_like(rewards))
    return rewards - (total / size.clamp(min=1))[group_ids]


def test_a_count_of_prompts() -> None:
    """The right use of it passes."""
    assert rl_sentinel.check(by_prompts, **_ADVANTAGE).ok


@pytest.mark.slow
def test_a_count_of_prompts_that_is_taken_for_another() -> None:
    """Rows of several prompts are mixed."""
    assert "REF001" in {finding.code for finding in rl_sentinel.check(by_responses, **_ADVANTAGE).findings}


@pytest.mark.slow
def test_prompts_that_follow_each_other() -> None:
    """A note says how to state that order."""
    result = rl_sentinel.check(by_columns, **_ADVANTAGE)
    assert "REF001" in {finding.code for finding in result.findings}
    assert 'bind={"num_prompts": "strided_num_prompts"}' in " ".join(str(result).split())
    assert rl_sentinel.check(by_columns, bind={"num_prompts": "strided_num_prompts"}, **_ADVANTAGE).ok


def test_beside_ids_the_count_must_fit_them() -> None:
    """It is asked for, and the proposal is right."""
    with pytest.raises(InputError, match=r'"n_groups": lambda batch: int\(batch.group.max\(\)\) \+ 1'):
        rl_sentinel.check(by_ids, **_ADVANTAGE)
    bind = {"n_groups": lambda batch: int(batch.group.max()) + 1}
    assert rl_sentinel.check(by_ids, bind=bind, **_ADVANTAGE).ok
