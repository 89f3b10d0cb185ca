"""Layouts that no binding can give are refused before anything is judged, and the way to check them works."""

from typing import Annotated, Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.adapters.kit.annotated_axes import documented_axes
from rl_sentinel.core.errors import InputError

GAE: dict[str, Any] = {"stage": "advantage", "algorithm": "gae"}


def time_major(rewards: Tensor, values: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """Advantages over time, steps first; rewards: [T, B], values: [T, B]."""
    advantage, last = torch.zeros_like(values), torch.zeros_like(values[0])
    following = torch.cat([values[1:], torch.zeros_like(values[:1])])
    for t in reversed(range(values.shape[0])):
        last = rewards[t] + gamma * following[t] - values[t] + gamma * lam * last
        advantage[t] = last
    return advantage


def annotated_time_major(rewards: Annotated[Tensor, "T B"], values: Annotated[Tensor, "T B"]) -> Tensor:
    return time_major(rewards, values)


def unstated_time_major(rewards: Tensor, values: Tensor) -> Tensor:
    return time_major(rewards, values)


def forgetful(
    rewards: Annotated[Tensor, "T B"], values: Annotated[Tensor, "T B"], gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """GAE whose sum ends after the next step."""
    steps = rewards + gamma * torch.cat([values[1:], torch.zeros_like(values[:1])]) - values
    return steps + gamma * lam * torch.cat([steps[1:], torch.zeros_like(steps[:1])])


def of_envs(rewards: Annotated[Tensor, "T B 1"], values: Annotated[Tensor, "T B 1"]) -> Tensor:
    return time_major(rewards.squeeze(-1), values.squeeze(-1))


def of_one(rewards: Any, values: Any, gamma: float = 0.99, lam: float = 0.95) -> list[float]:
    """Advantages of one trajectory; rewards: [T], values: [T]."""
    return time_major(torch.as_tensor(rewards), torch.as_tensor(values), gamma, lam).tolist()


def of_one_list(rewards: list[float], values: list[float]) -> list[float]:
    return of_one(rewards, values)


def of_rewards(rewards: list[float], gamma: float = 0.9) -> list[float]:
    return [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def clipped(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, clip_range: float = 0.2) -> Tensor:
    """PPO's loss on a flat mini-batch; log_prob: [B], old_log_prob: [B], advantages: [B]."""
    ratio = (log_prob - old_log_prob).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - clip_range, 1 + clip_range) * advantages).mean()


def squares(values: Tensor, returns: Tensor) -> Tensor:
    """The mean squared error; values: [B], returns: [B]."""
    return ((values - returns) ** 2).mean()


def of_rows_and_tokens(values: Tensor, returns: Tensor) -> Tensor:
    """The mean squared error; values: [B], returns: [B, T]."""
    return squares(values.unsqueeze(1), returns)


def largest(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor) -> Tensor:
    """The larger of the two products; log_prob: [T], old_log_prob: [T], advantages: [T]."""
    return -clipped(log_prob, old_log_prob, -advantages)


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (of_envs, GAE, "rewards has the axes [T, B, 1] in its annotation, expected one of [B, T], [T, B], [B], "),
        (of_one, GAE, "rewards has the axes [T] in its docstring, of one trajectory, expected [B, T], or for "),
        (of_one_list, GAE, "values is one list of numbers, expected one list per response: if your function takes "),
        (
            of_one_list,
            {"stage": "advantage"},
            "values is one list of numbers, expected one list per response, or a tensor [B]: if your function ",
        ),
        (
            of_rewards,
            {"stage": "advantage", "algorithm": "reinforce++"},
            "rewards is one list of numbers, and nothing ",
        ),
        (
            lambda log_prob, old_log_prob, advantages: clipped(log_prob, old_log_prob, advantages, 0.2),
            {"stage": "policy-loss", "bind": {"log_prob": "logprob", "old_log_prob": "old_logprob[B]"}},
            "old_log_prob is bound to old_logprob as one number per response, expected one per token: ",
        ),
        (
            of_rows_and_tokens,
            {"stage": "value-loss", "algorithm": "ppo"},
            "values is bound to value as one number per response, expected one per token: state its layout, [B, T] ",
        ),
    ],
)
def test_layouts_without_a_binding_are_refused(function: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        rl_sentinel.check(function, **options)
    assert f" cannot be checked: {words}" in str(error.value)
    assert "\n" not in str(error.value)


def one_by_one(rewards: list[list[float]], values: list[list[float]]) -> list[list[float]]:
    return [of_one(r, v) for r, v in zip(rewards, values, strict=True)]


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (
            lambda rewards, values: time_major(rewards.T, values.T).T,
            {**GAE, "bind": {"rewards": "token_rewards[B T]"}},
        ),
        (time_major, GAE),
        (annotated_time_major, GAE),
        (unstated_time_major, GAE),
        (one_by_one, GAE),
        (clipped, {"stage": "policy-loss", "algorithm": "ppo"}),
        (squares, {"stage": "value-loss", "algorithm": "ppo"}),
        (
            unstated_time_major,
            {**GAE, "bind": {"rewards": lambda batch: batch.token_reward.T, "values": lambda batch: batch.value.T}},
        ),
        (
            clipped,
            {
                "stage": "policy-loss",
                "algorithm": "ppo",
                "bind": {
                    "log_prob": "logprob[N]",
                    "old_log_prob": "old_logprob[N]",
                    "advantages": "advantage[N]",
                },
            },
        ),
        (
            squares,
            {"stage": "value-loss", "algorithm": "ppo", "bind": {"values": "value[N]", "returns": "returns[N]"}},
        ),
    ],
)
def test_layouts_that_fit_and_the_fixes_in_the_messages_are_sound(function: Any, options: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, laws=["REF001", "PRM001"], **options)
    assert result.ok, str(result)
    assert "holds" in {v.outcome for v in result.verdicts if v.law == "REF001"}


def test_a_baseline_may_be_one_number_per_response() -> None:
    def centered(rewards: Tensor, values: Tensor) -> Tensor:
        """rewards: [B], values: [B]."""
        return rewards - values

    assert rl_sentinel.check(centered, stage="advantage", laws=["PRM001"]).ok


def test_all_tokens_end_to_end_may_be_called_time() -> None:
    def k3(log_probs: Tensor, ref_log_probs: Tensor, cu_seqlens: Tensor) -> Tensor:
        """log_probs: [T], ref_log_probs: [T], cu_seqlens: [B + 1]."""
        if log_probs.dim() != 1 or int(cu_seqlens[-1]) != len(log_probs):
            raise TypeError("expected all tokens end to end")
        difference = ref_log_probs - log_probs
        return difference.exp() - difference - 1

    result = rl_sentinel.check(k3, stage="kl", algorithm="k3", laws=["REF001"])
    assert result.ok, str(result)


def test_a_plural_in_parentheses_is_no_axis() -> None:
    def centered(reward: Tensor, mask: Tensor) -> Tensor:
        """Center the reward(s); the mask (seq,) is that of one sequence."""
        return reward * mask

    assert (documented_axes(centered, "reward"), documented_axes(centered, "mask")) == ("", "T")


@pytest.mark.parametrize(
    ("function", "options"), [(forgetful, GAE), (largest, {"stage": "policy-loss", "algorithm": "ppo"})]
)
def test_faults_in_these_layouts_are_found(function: Any, options: dict[str, Any]) -> None:
    assert "REF001" in {f.code for f in rl_sentinel.check(function, laws=["REF001"], **options).faults}


def test_a_flat_batch_is_noted() -> None:
    result = rl_sentinel.check(squares, stage="value-loss", algorithm="ppo", laws=["REF001"], budget=2)
    assert "values, returns were passed as the tokens of all responses, [N]" in result.notes
