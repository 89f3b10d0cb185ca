"""Functions that ask how many axes an argument has: each branch is judged with its layout."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.checks.result import CheckResult


def _ppo(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio = (logprobs - old_logprobs).exp()
    losses = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return (losses * mask).sum() / mask.sum()


def sound(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1)
    return _ppo(logprobs, old_logprobs, advantages, mask)


def other_sign(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    if advantages.ndim == 1:
        advantages = -advantages.unsqueeze(1)
    return _ppo(logprobs, old_logprobs, advantages, mask)


def centered_key(batch: dict[str, Tensor]) -> Tensor:
    own = batch["advantages"]
    if len(own.shape) < 2:
        own = own[:, None] - own.mean()
    return _ppo(batch["logprobs"], batch["old_logprobs"], own, batch["mask"])


def one_trajectory(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(0)
    return _ppo(logprobs, old_logprobs, advantages, mask)


def _checked(function: Any, **options: Any) -> CheckResult:
    numbers = {"clip_low": 0.2, "clip_high": 0.2}
    claims = {"aggregation": "token-mean"}
    return rl_sentinel.check(
        function, stage="policy-loss", algorithm="ppo", claims=claims, numbers=numbers, budget=4, **options
    )


@pytest.mark.slow
def test_a_sound_function_is_sound_in_both_branches() -> None:
    result = _checked(sound)
    assert result.ok, str(result)
    assert not result.findings
    settings = {verdict.setting for verdict in result.verdicts if verdict.law == "REF001"}
    assert settings == {"default", "advantages as advantage[B]"}
    assert any("it is also checked with advantages as advantage[B]" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("function", [other_sign, centered_key])
def test_a_fault_of_one_branch_is_found(function: Any) -> None:
    faults = {(one.code, one.evidence["setting"]) for one in _checked(function).faults}
    path = "advantages" if function is other_sign else "batch.advantages"
    assert ("REF001", f"{path} as advantage[B]") in faults
    assert not any(setting == "default" for _, setting in faults)


def test_only_the_layout_that_a_user_states_is_checked() -> None:
    assert _checked(other_sign, bind={"advantages": "advantage[B T]"}).ok


def test_a_branch_that_fails_with_one_number_per_response_is_noted() -> None:
    result = _checked(one_trajectory)
    assert result.ok, str(result)
    assert any("but fails with advantages as advantage[B]: check it with bind" in note for note in result.notes)
