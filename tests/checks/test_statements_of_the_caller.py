"""What the caller of a function decides: the order of responses, values of untrained tokens, the order of results."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel

_RLOO: dict[str, Any] = {"stage": "advantage", "algorithm": "rloo", "budget": 2}
_GAE: dict[str, Any] = {"stage": "advantage", "algorithm": "gae", "budget": 2}


def rounds(rewards: Tensor, k: int) -> Tensor:
    by_round = rewards.reshape(k, -1)
    return (by_round - (by_round.sum(0) - by_round) / (k - 1)).flatten()


def rounds_by_name(rewards: Tensor, rloo_k: int) -> Tensor:
    return rounds(rewards, rloo_k)


def of_adjacent(rewards: Tensor, rloo_k: int) -> Tensor:
    by_prompt = rewards.reshape(-1, rloo_k)
    return (by_prompt - (by_prompt.sum(1, keepdim=True) - by_prompt) / (rloo_k - 1)).flatten()


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (rounds, {"bind": {"k": "strided_group_size"}}),
        (rounds, {"bind": {"k": "rloo_k"}}),
        (rounds, {"bind": {"k": 4}, "numbers": {"strided_group_size": 4}}),
        (rounds_by_name, {}),
    ],
)
def test_responses_of_a_prompt_may_be_apart(function: Any, options: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, **_RLOO, **options)
    assert result.ok
    assert any(verdict.law == "REF001" and verdict.outcome == "holds" for verdict in result.verdicts)


def test_a_wrong_grouping_of_responses_that_are_apart_is_found() -> None:
    result = rl_sentinel.check(of_adjacent, **_RLOO)
    assert {"GRP001", "REF001"} <= {finding.code for finding in result.findings}


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({"bind": {"k": "group_size"}}, 'bind={"k": "strided_group_size"}'),
        ({"bind": {"k": 4}, "numbers": {"group_size": 4}}, 'numbers={"strided_group_size": 4}'),
    ],
)
def test_the_report_says_if_another_order_fits(options: dict[str, Any], stated: str) -> None:
    result = rl_sentinel.check(rounds, **_RLOO, **options)
    assert not result.ok
    assert any(stated in note for note in result.notes)


def _gae(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Tensor:
    columns, carried = [], torch.zeros(len(values))
    for t in reversed(range(values.shape[1])):
        following = values[:, t + 1] if t + 1 < values.shape[1] else torch.zeros(len(values))
        carried = rewards[:, t] + gamma * following - values[:, t] + gamma * lam * carried
        columns.append(carried)
    return torch.stack(columns[::-1], 1)


def reads_values_off_mask(values: Tensor, rewards: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    return _gae(values, rewards, gamma, lam) * mask


def test_values_may_be_zero_at_untrained_tokens() -> None:
    result = rl_sentinel.check(reads_values_off_mask, **_GAE)
    assert {finding.code for finding in result.findings} == {"MSK002", "REF001"}
    assert any('bind={"values": "masked_value"}' in note for note in result.notes)
    assert rl_sentinel.check(reads_values_off_mask, bind={"values": "masked_value"}, **_GAE).ok


def by_width(values: Tensor, rewards: Tensor, response_length: int, gamma: float = 0.9, lam: float = 0.8) -> Any:
    adv = _gae(values[:, :response_length], rewards, gamma, lam)
    return adv, adv + values


def by_width_without_annotation(values, rewards, response_length, gamma=0.9, lam=0.8):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as users write it
    return by_width(values, rewards, range(response_length)[-1] + 1, gamma, lam)


@pytest.mark.parametrize("function", [by_width, by_width_without_annotation])
def test_a_length_may_be_the_width(function: Any) -> None:
    assert rl_sentinel.check(function, **_GAE).ok


def returns_first(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    adv = _gae(values, rewards, gamma, lam)
    returns = adv + values
    return returns, adv


def without_values(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    adv = _gae(values, rewards, gamma, lam)
    returns = adv
    return adv, returns


def twice(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    adv = _gae(values, rewards, gamma, lam)
    return adv, adv


def plus_rewards(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    adv = _gae(values, rewards, gamma, lam)
    return {"advantages": adv, "returns": adv + rewards}


def test_the_advantage_may_be_the_second_item() -> None:
    assert rl_sentinel.check(returns_first, **_GAE).ok


@pytest.mark.parametrize("function", [without_values, twice, plus_rewards])
def test_wrong_returns_are_found(function: Any) -> None:
    (finding,) = rl_sentinel.check(function, **_GAE).findings
    assert finding.code == "REF001"
    assert finding.sentence.startswith("returns is ")
