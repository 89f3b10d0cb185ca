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


def tuple_per_prompt(rewards: list[Tensor]) -> tuple[Tensor, ...]:
    return tuple(own - own.mean() for own in rewards)


def two_outputs(rewards: list[Tensor]) -> tuple[Tensor, Tensor]:
    centered = torch.cat([own - own.mean() for own in rewards])
    return centered, torch.cat(rewards)


def tuple_per_response(logprobs: list[Tensor], ref_logprobs: list[Tensor]) -> tuple[Tensor, ...]:
    gap = torch.cat(ref_logprobs) - torch.cat(logprobs)
    return torch.split(gap.exp() - gap - 1, [len(own) for own in logprobs])


def test_a_tuple_is_read_as_a_list_where_it_has_a_tensor_per_prompt_or_response() -> None:
    for function in (tuple_per_prompt, two_outputs):
        result = rl_sentinel.check(function, stage="advantage", algorithm="dr_grpo", budget=4)
        assert result.ok, str(result)
        assert not result.findings
    result = rl_sentinel.check(tuple_per_response, stage="kl", algorithm="k3", budget=4)
    assert result.ok, str(result)
    assert not result.findings
