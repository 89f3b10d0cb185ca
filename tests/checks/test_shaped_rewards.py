"""Rewards of users with a KL penalty inside: what the claim of an estimator compares, and the sign without one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel

#: Most tests try all laws on a function.
pytestmark = pytest.mark.slow


def per_token(token_level_rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, kl_coef: float) -> Tensor:
    """Token rewards less k1."""
    return token_level_rewards - kl_coef * (logps - ref_logps) * mask


def at_last(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
    """The outcome at the last trained token, less k3 by a number in the code."""
    gap = ref_logps - logps
    last = mask.long().cumsum(1).argmax(1, keepdim=True)
    return (-0.05 * (gap.exp() - gap - 1) * mask).scatter_add(1, last, rewards.unsqueeze(1))


def per_row(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, beta: float = 0.1) -> Tensor:
    """The outcome of a row less its summed k2."""
    return rewards - beta * ((logps - ref_logps).square() / 2 * mask).sum(1)


def alone(logps: Tensor, ref_logps: Tensor, mask: Tensor, beta: float = 0.1) -> Tensor:
    """The penalty alone, which a caller adds to rewards."""
    return -beta * (logps - ref_logps).abs() * mask


def _flipped(reward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A reward whose penalty is added: the reference and the policy change places, or the sign does."""

    def token_flipped(
        token_level_rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, kl_coef: float
    ) -> Tensor:
        return per_token(token_level_rewards, ref_logps, logps, mask, kl_coef)

    def row_flipped(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, beta: float = 0.1) -> Tensor:
        return per_row(rewards, logps, ref_logps, mask, -beta)

    def alone_flipped(logps: Tensor, ref_logps: Tensor, mask: Tensor, beta: float = 0.1) -> Tensor:
        return alone(logps, ref_logps, mask, -beta)

    flipped: dict[Callable[..., Tensor], Callable[..., Tensor]]
    flipped = {per_token: token_flipped, per_row: row_flipped, alone: alone_flipped}
    return flipped[reward]


ESTIMATORS = {per_token: "k1", at_last: "k3", per_row: "k2", alone: "abs"}


@pytest.mark.parametrize("reward", ESTIMATORS)
def test_the_claimed_estimator_fits_and_no_other_does(reward: Callable[..., Tensor]) -> None:
    claimed = ESTIMATORS[reward]
    result = rl_sentinel.check(reward, stage="reward", claims={"kl": claimed})
    assert result.ok
    assert "REF001" in {v.law for v in result.verdicts if v.outcome == "holds"}
    numbers = {"kl_coef": 0.05} if reward is at_last else {}
    other = "k2" if claimed == "k3" else "k3"
    (finding,) = rl_sentinel.check(reward, stage="reward", claims={"kl": other}, numbers=numbers).findings
    assert (finding.code, finding.level) == ("REF001", "fault")


@pytest.mark.parametrize("reward", [per_token, per_row, alone])
def test_a_penalty_that_is_added_is_found(reward: Callable[..., Tensor]) -> None:
    flipped = _flipped(reward)
    (finding,) = rl_sentinel.check(flipped, stage="reward").findings
    assert (finding.code, finding.level) == ("KLR001", "contested")
    assert rl_sentinel.check(reward, stage="reward").ok
    stated = rl_sentinel.check(flipped, stage="reward", claims={"kl": ESTIMATORS[reward]}).findings
    assert {(f.code, f.level) for f in stated} == {("REF001", "fault"), ("KLR001", "contested")}


def test_a_penalty_inside_of_advantages_is_found() -> None:
    def centered(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor, num_generations: int) -> Tensor:
        shaped = rewards + 0.05 * ((logps - ref_logps) * mask).sum(1)
        groups = shaped.view(-1, num_generations)
        return (groups - groups.mean(1, keepdim=True)).flatten()

    found = rl_sentinel.check(centered, stage="advantage", laws=["KLR001"]).findings
    assert {f.code for f in found} == {"KLR001"}


def test_a_number_that_nothing_states_is_asked_for() -> None:
    """Without the coefficient nothing is compared with the formula, and that is said."""

    def scaled(rewards: Tensor, logps: Tensor, ref_logps: Tensor, mask: Tensor) -> Tensor:
        return rewards - torch.tensor([0.1]).square() * ((logps - ref_logps) * mask).sum(1)

    result = rl_sentinel.check(scaled, stage="reward", claims={"kl": "k1"})
    assert any("which needs kl_coef" in v.reason for v in result.verdicts if v.outcome == "errored")


def rewards_at_last(rewards: Tensor, mask: Tensor) -> Tensor:
    """OpenRLHF's index of the last trained token; of a row without one it is the last position."""
    last = mask.shape[1] - 1 - mask.long().fliplr().argmax(1, keepdim=True)
    return torch.zeros(mask.shape).scatter(1, last, rewards.unsqueeze(1))


def rewards_at_first(rewards: Tensor, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape).scatter(1, mask.long().argmax(1, keepdim=True), rewards.unsqueeze(1))


@pytest.mark.parametrize(("function", "sound"), [(rewards_at_last, True), (rewards_at_first, False)])
def test_where_the_reward_of_an_untrained_row_is_put(function: Any, *, sound: bool) -> None:
    """Its callers may never pass such a row, and it trains nothing."""
    options: dict[str, Any] = {"stage": "reward", "algorithm": "outcome at the last trained token"}
    assert rl_sentinel.check(function, **options).ok is sound


def test_a_reward_with_a_kl_is_not_held_to_a_formula_without_one() -> None:
    options: dict[str, Any] = {"stage": "reward", "budget": 2}
    result = rl_sentinel.check(per_token, **options)
    assert 'its KL is not compared with a formula: state the estimator, as in claims={"kl": "k1"}' in result.notes
    result = rl_sentinel.check(at_last, algorithm="outcome at the last trained token", **options)
    assert not result.findings
    assert "which has no KL, but the rewards have one: state the estimator" in " ".join(str(result).split())
