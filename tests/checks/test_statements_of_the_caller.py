"""What the caller of a function decides: the order of responses, values of untrained tokens, the order of results."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow

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


@pytest.mark.slow
def test_a_name_alone_does_not_decide_the_order_of_responses() -> None:
    open_ = rl_sentinel.check(of_adjacent, **_RLOO)
    assert not open_.ok
    assert not open_.findings
    assert 'state bind={"rloo_k": "group_size"} if they are' in " ".join(str(open_).split())
    assert rl_sentinel.check(of_adjacent, bind={"rloo_k": "group_size"}, **_RLOO).ok
    stated = rl_sentinel.check(of_adjacent, bind={"rloo_k": "strided_group_size"}, **_RLOO)
    assert {"GRP001", "REF001"} <= {finding.code for finding in stated.findings}


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


@pytest.mark.slow
def test_values_may_be_zero_at_untrained_tokens() -> None:
    open_ = rl_sentinel.check(reads_values_off_mask, **_GAE)
    assert not open_.ok
    assert not open_.findings
    stating = 'state bind={"values": "masked_value"} if the caller does, "value[B T]" if not'
    assert stating in " ".join(str(open_).split())
    assert rl_sentinel.check(reads_values_off_mask, bind={"values": "masked_value"}, **_GAE).ok
    stated = rl_sentinel.check(reads_values_off_mask, bind={"values": "value[B T]"}, **_GAE)
    assert {finding.code for finding in stated.findings} == {"MSK002", "REF001"}


def of_trained_values(values: Tensor, rewards: Tensor, mask: Tensor, gamma: float, lam: float) -> Any:
    out = _gae(values * mask, rewards * mask, gamma, lam)
    returns = out + values
    return returns, out


def test_an_untrained_token_may_be_a_step_without_value() -> None:
    """The advantage is the item beside the returns, whatever its name, and the returns have the same readings."""
    assert rl_sentinel.check(of_trained_values, **_GAE).ok


def by_width(values: Tensor, rewards: Tensor, response_length: int, gamma: float = 0.9, lam: float = 0.8) -> Any:
    adv = _gae(values[:, :response_length], rewards, gamma, lam)
    return adv, adv + values


def by_width_without_annotation(values, rewards, response_length, gamma=0.9, lam=0.8):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as users write it
    return by_width(values, rewards, range(response_length)[-1] + 1, gamma, lam)


@pytest.mark.parametrize("function", [by_width, by_width_without_annotation])
def test_a_length_may_be_the_width(function: Any) -> None:
    assert rl_sentinel.check(function, **_GAE).ok


def before_padding(values: Tensor, rewards: Tensor, padding_mask: Tensor, gamma: float, lam: float) -> Tensor:
    adv = _gae(values.masked_fill(padding_mask, 0.0), rewards.masked_fill(padding_mask, 0.0), gamma, lam)
    return adv.masked_fill(padding_mask, 0.0)


def test_the_meaning_of_a_padding_mask_is_asked_for() -> None:
    with pytest.raises(rl_sentinel.InputError, match=r'"padding".*padding is True at padding, mask at trained tokens'):
        rl_sentinel.check(before_padding, **_GAE)
    assert rl_sentinel.check(before_padding, bind={"padding_mask": "padding"}, **_GAE).ok


def of_values(values: Tensor) -> Tensor:
    return (values - values.mean()) / (values.std() + 1e-8)


def of_returns(returns: Tensor) -> Tensor:
    return of_values(returns)


def test_an_advantage_without_a_reward_is_asked_for() -> None:
    options: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "budget": 2}
    with pytest.raises(rl_sentinel.InputError, match=r'the function reads no reward, .*bind={"values": "reward"}'):
        rl_sentinel.check(of_values, **options)
    assert rl_sentinel.check(of_values, bind={"values": "reward[K]"}, **options).ok


@pytest.mark.slow
def test_returns_of_an_algorithm_of_outcomes_are_its_rewards() -> None:
    options: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "budget": 2}
    (reason,) = rl_sentinel.check(of_returns, **options).errored
    assert 'state bind={"returns": "reward[K]"} for one prompt, "reward[B]" for several' in reason
    assert rl_sentinel.check(of_returns, bind={"returns": "reward[K]"}, **options).ok


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


def without_decay(values: Tensor, rewards: Tensor, gamma: float = 0.9, lam: float = 0.95) -> Tensor:
    return _gae(values, rewards, gamma, 1.0)


def test_a_decay_that_is_not_read_is_found() -> None:
    result = rl_sentinel.check(without_decay, **_GAE)
    assert "REF001" in {finding.code for finding in result.findings}
    assert "the function does not read its parameter lam" in result.notes


class Critic:
    """An estimator whose settings are attributes."""

    gamma, lam = 0.9, 0.8

    def right(self, values: Tensor, rewards: Tensor) -> Tensor:
        return _gae(values, rewards, self.gamma, self.lam)

    def squared(self, values: Tensor, rewards: Tensor) -> Tensor:
        return _gae(values, rewards, self.gamma, self.gamma)


@pytest.mark.slow
def test_a_setting_beside_one_that_is_read_counts() -> None:
    assert rl_sentinel.check(Critic().right, **_GAE).ok
    assert "REF001" in {finding.code for finding in rl_sentinel.check(Critic().squared, **_GAE).findings}


def test_the_advantage_may_be_the_second_item() -> None:
    assert rl_sentinel.check(returns_first, **_GAE).ok


@pytest.mark.slow
@pytest.mark.parametrize("function", [without_values, twice, plus_rewards])
def test_wrong_returns_are_found(function: Any) -> None:
    (finding,) = rl_sentinel.check(function, **_GAE).findings
    assert finding.code == "REF001"
    assert finding.sentence.startswith("returns is ")


class Pair(NamedTuple):
    """A result by names, in another order than usual."""

    returns: Tensor
    advantages: Tensor


def by_field(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Pair:
    found = _gae(values, rewards, gamma, lam)
    return Pair(found + values, found)


def by_field_alone(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Pair:
    found = _gae(values, rewards, gamma, lam)
    return Pair(found, found)


def by_item(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> dict[str, Tensor]:
    out = {"advantages": _gae(values, rewards, gamma, lam)}
    out["returns"] = out["advantages"] + rewards
    return out


@pytest.mark.slow
@pytest.mark.parametrize("function", [by_field_alone, by_item])
def test_wrong_returns_of_a_field_or_an_entry_are_found(function: Any) -> None:
    (finding,) = rl_sentinel.check(function, **_GAE).findings
    assert finding.sentence.startswith("returns is ")


def beside_something(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    out = _gae(values, rewards, gamma, lam)
    return {"advantages": out, "other": out * 2}


def beside_a_number(values: Tensor, rewards: Tensor, gamma: float, lam: float) -> Any:
    out = _gae(values, rewards, gamma, lam)
    return {"advantages": out, "other": out.mean()}


@pytest.mark.parametrize(("function", "notes"), [(beside_something, 1), (beside_a_number, 0)])
def test_the_report_says_if_another_item_is_not_compared(function: Any, notes: int) -> None:
    result = rl_sentinel.check(function, **_GAE)
    assert result.ok
    assert sum("only the advantages in its result are compared" in note for note in result.notes) == notes


def test_the_fields_of_a_named_tuple_are_read_by_name() -> None:
    assert rl_sentinel.check(by_field, **_GAE).ok


def fails_on_dead_rows(rewards: Tensor, mask: Tensor) -> Tensor:
    shaped = torch.zeros(mask.shape)
    for row in range(len(rewards)):
        shaped[row, mask[row].nonzero()[-1]] = rewards[row]
    return shaped


def test_a_function_that_fails_on_a_row_without_a_trained_token_is_checked_without_one() -> None:
    result = rl_sentinel.check(fails_on_dead_rows, stage="reward", budget=2)
    assert result.ok
    assert any(
        "the function raised IndexError" in n and "on a row without a trained token; such rows" in n
        for n in result.notes
    )


def of_three(rewards: Tensor) -> Tensor:
    by_prompt = rewards.view(-1, 3)
    return (by_prompt - by_prompt.mean(1, keepdim=True)).flatten()


@pytest.mark.slow
def test_three_responses_of_a_prompt_are_found_in_the_code() -> None:
    """Three is also the number of the batch with which layouts are tried."""
    result = rl_sentinel.check(of_three, stage="advantage", algorithm="dr_grpo", budget=2)
    assert result.ok
    assert any('numbers={"group_size": 3}' in note for note in result.notes)


def of_tokens(logps: Tensor, old_logps: Tensor, advantages: Tensor) -> Tensor:
    return -(logps - old_logps).exp() * advantages


def test_a_loss_per_token_says_what_is_expected() -> None:
    result = rl_sentinel.check(of_tokens, stage="policy-loss", algorithm="ppo", budget=2)
    assert not result.ok
    assert "has shape [2, 2], expected one number: check a wrapper" in " ".join(str(result).split())


@dataclass
class Parts:
    """A result with the loss in a field."""

    clipped: float
    loss: Tensor


def in_a_field(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Parts:
    ratio = (logps - old_logps).exp()
    loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return Parts(0.0, (loss * mask).sum() / mask.sum())


@pytest.mark.slow
def test_the_loss_may_be_a_field_of_a_dataclass() -> None:
    options: dict[str, Any] = {"stage": "policy-loss", "algorithm": "ppo", "claims": {"aggregation": "token-mean"}}
    assert rl_sentinel.check(in_a_field, budget=2, **options).ok


def test_rewards_of_several_functions_are_a_column_each() -> None:
    def advantages(rewards_per_func: Tensor, num_generations: int = 4) -> Tensor:
        rewards = rewards_per_func.nansum(1).view(-1, num_generations)
        return (rewards - rewards.mean(1, keepdim=True)).flatten()

    assert rl_sentinel.check(advantages, stage="advantage", algorithm="grpo").ok


def test_none_states_no_algorithm() -> None:
    def mean_of_rows(loss_mat: Tensor, mask: Tensor) -> Tensor:
        return ((loss_mat * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()

    assert rl_sentinel.check(mean_of_rows, stage="aggregate", algorithm=None).ok


def test_a_default_of_none_that_a_function_fails_on_is_asked_for() -> None:
    def loss(pi_logprobs: Tensor, pi_old_logprobs: Tensor, advantages: Tensor, padding_masks: Any = None) -> Any:
        ratio = torch.exp(pi_logprobs - pi_old_logprobs)
        least = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return -(least * padding_masks).sum() / padding_masks.sum()

    with pytest.raises(InputError, match=r'maybe because padding_masks is None, the default: .*"padding_masks"'):
        rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo")
    bound = rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo", bind={"padding_masks": "mask"})
    assert bound.ok


def test_tensors_of_one_number_in_items_of_a_list() -> None:
    def write(experiences: Any, n_samples_per_prompt: int = 4) -> None:
        rewards = torch.stack([one.reward for one in experiences]).reshape(-1, n_samples_per_prompt)
        centered = (rewards - rewards.mean(1, keepdim=True)).flatten()
        for one, number in zip(experiences, centered, strict=True):
            one.advantages = number * one.action_mask.float()

    assert rl_sentinel.check(write, stage="advantage", algorithm="grpo").ok


def discounted(token_level_rewards: Tensor, response_mask: Tensor, gamma: float = 1.0) -> Tensor:
    returns, later = torch.zeros_like(token_level_rewards), torch.zeros(len(token_level_rewards))
    for t in reversed(range(returns.shape[1])):
        later = token_level_rewards[:, t] + gamma * later
        returns[:, t] = later
    return returns * response_mask


def test_a_discount_keeps_its_default_where_the_algorithm_has_none() -> None:
    outcome = rl_sentinel.check(discounted, stage="advantage", algorithm="outcome", budget=4)
    assert outcome.ok, str(outcome)
    assert not outcome.findings
