"""Axes that nobody stated: a function is judged with those in which it computes its formula."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.checks.result import CheckResult
from rl_sentinel.core.errors import InputError


def over_the_row(rewards: Any) -> Any:
    return (rewards - rewards.mean(-1, keepdim=True)) / (rewards.std(-1, keepdim=True) + 1e-6)


def by_dim(rewards: Any) -> Any:
    return (rewards - rewards.mean(dim=1, keepdim=True)) / (rewards.std(dim=1, keepdim=True) + 1e-6)


def documented(rewards: Any) -> Any:
    """Compare rewards [G, K] with those of the same prompt."""
    return by_dim(rewards)


def over_the_column(rewards: Any) -> Any:
    """Compare rewards [G, K] with those of other prompts."""
    return by_dim(rewards.T).T


def wrongly_documented(rewards: Any, group_ids: Any) -> Any:
    """Compare rewards: (B, T) with those of the same prompt."""
    same = (group_ids[:, None] == group_ids[None, :]).float()
    return rewards - same @ rewards / same.sum(1)


def rewards_per_response(rewards: "N", group_ids: "N") -> Any:  # type: ignore[name-defined]
    return wrongly_documented(rewards, group_ids)


def over_the_rows(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2
) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages) * mask
    return (loss.sum(0) / mask.sum(0).clamp(min=1)).mean()


def to_go(rewards: Tensor, values: Tensor) -> Tensor:
    """GAE with a discount and a decay of 1."""
    return rewards.flip(1).cumsum(1).flip(1) - values


def _check(function: Any, algorithm: str = "grpo", **options: Any) -> CheckResult:
    return rl_sentinel.check(function, stage="advantage", algorithm=algorithm, **options)


@pytest.mark.parametrize("function", [over_the_row, by_dim])
def test_what_is_sound_by_prompt_is_not_judged_by_row(function: Any) -> None:
    result = _check(function)
    assert (result.ok, result.findings) == (True, ())
    assert any("reward[GK]" in note for note in result.notes)


@pytest.mark.parametrize("function", [documented, rewards_per_response])
def test_a_docstring_and_an_annotation_state_axes(function: Any) -> None:
    assert _check(function, laws=["REF001", "GRP001"]).ok


def test_a_docstring_that_may_be_wrong_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"accepts rewards as reward\[B\] and not with the axes in its docstring"):
        _check(wrongly_documented, laws=["REF001"])
    assert _check(wrongly_documented, laws=["REF001"], bind={"rewards": "reward[B]"}).ok


def test_a_statistic_over_the_wrong_axis_is_found() -> None:
    assert {"GRP001", "REF001"} <= {finding.code for finding in _check(over_the_column).faults}


def test_a_mean_over_the_wrong_axis_of_a_loss_is_found() -> None:
    """With [N] in place of [B, T] it would be right."""
    claims = {"aggregation": "token-mean"}
    result = rl_sentinel.check(over_the_rows, stage="policy-loss", algorithm="grpo", claims=claims, laws=["REF001"])
    assert result.faults


def test_token_rewards_without_their_outcome_are_not_compared_with_it() -> None:
    numbers = {"gamma": 1.0, "lambda": 1.0}
    assert _check(to_go, "gae", bind={"rewards": "token_reward"}, numbers=numbers, laws=["REF001"]).ok
