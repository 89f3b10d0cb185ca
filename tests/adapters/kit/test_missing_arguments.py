"""A function that needs an argument which its parameters do not require."""

from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError

LOSS: dict[str, Any] = {"stage": "policy-loss", "algorithm": "reinforce", "claims": {"aggregation": "token-mean"}}


def masked(logprobs: Tensor, advantages: Tensor, **more: Tensor) -> Tensor:
    return -(logprobs * advantages * more["mask"]).sum() / more["mask"].sum()


def colored(logprobs: Tensor, advantages: Tensor, **more: Tensor) -> Tensor:
    return -(logprobs * advantages * more["color"]).sum()


def test_a_key_of_further_arguments_is_asked_for() -> None:
    with pytest.raises(
        InputError,
        match=r"the function fails because 'mask' is missing: if mask is .* with bind=\{\"mask\": \"mask\"\}$",
    ):
        rl_sentinel.check(masked, **LOSS)
    with pytest.raises(
        InputError, match=r"the function fails because 'color' is missing: .* with bind=\{\"color\": \.\.\.\}$"
    ):
        rl_sentinel.check(colored, **LOSS)
    assert rl_sentinel.check(masked, bind={"mask": "mask"}, budget=4, **LOSS).ok


def of_one_question(rewards: Tensor) -> Tensor:
    """Rewards of the samples of one question, shape (K,)."""
    return rewards - rewards.mean()


def packed(rewards: Tensor, values: Tensor, cu_seqlens: Tensor, gamma: float = 0.9, lam: float = 0.8) -> Tensor:
    """Compute GAE of rewards: [N], values: [N]."""
    advantages = torch.zeros_like(values)
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        later = torch.tensor(0.0)
        for t in range(end - 1, start - 1, -1):
            following = values[t + 1] if t + 1 < end else 0.0
            later = rewards[t] + gamma * following - values[t] + gamma * lam * later
            advantages[t] = later
    return advantages


def test_axes_in_a_docstring_of_one_parameter_and_of_all_tokens() -> None:
    prompt = rl_sentinel.check(of_one_question, stage="advantage", algorithm="dr_grpo", budget=4)
    assert prompt.ok, str(prompt)
    tokens = rl_sentinel.check(packed, stage="advantage", algorithm="gae", budget=4)
    assert tokens.ok, str(tokens)
    assert not tokens.findings
