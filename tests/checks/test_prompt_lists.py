"""Functions of a list per prompt: its length is the number of responses, which prompts need not share."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel


def own_length(rewards: Any) -> list[list[float]]:
    return [[float(r) - float(sum(own)) / len(own) for r in own] for own in rewards]


def longest(rewards: Any) -> list[list[float]]:
    """Divide by the length of the longest list, which is right where all are equal."""
    count = max(map(len, rewards))
    return [[float(r) - float(sum(own)) / count for r in own] for own in rewards]


def stacked(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(dim=1, keepdim=True)


@pytest.mark.parametrize("axes", ["G lists", "G ragged"])
def test_lists_of_different_lengths_are_tried(axes: str) -> None:
    bind = {"rewards": f"reward[{axes}]"}
    sound = rl_sentinel.check(own_length, stage="advantage", algorithm="grpo", bind=bind, budget=4)
    assert sound.ok, str(sound)
    wrong = rl_sentinel.check(longest, stage="advantage", algorithm="grpo", bind=bind, laws=["REF001"])
    (formula,) = wrong.findings
    assert len(set(torch.unique(formula.case.batch.group, return_counts=True)[1].tolist())) > 1


def test_a_tensor_by_prompt_has_groups_of_one_size() -> None:
    result = rl_sentinel.check(stacked, stage="advantage", algorithm="grpo", bind={"rewards": "reward[G K]"}, budget=4)
    assert result.ok, str(result)
