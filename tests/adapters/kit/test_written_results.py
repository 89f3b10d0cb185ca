"""Functions that return nothing and write their result into an argument."""

from typing import Any

import numpy as np
import pytest
import torch

import rl_sentinel
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.returned_names import returns_nothing
from rl_sentinel.adapters.kit.written_results import written_argument


def of_dict(batch: dict[str, Any]) -> None:
    same = (batch["group"][:, None] == batch["group"][None, :]).float()
    batch["advantages"] = batch["rewards"] - same @ batch["rewards"] / same.sum(1)


def returned_and_written(batch: dict[str, Any]) -> Any:
    batch["advantages"] = batch["rewards"]
    return batch["rewards"] - batch["rewards"].mean()


def of_dict_over_all(batch: dict[str, Any]) -> None:
    batch["group"].sum()
    batch["advantages"] = batch["rewards"] - batch["rewards"].mean()


def of_settings(args: Any, rollout_data: Any) -> None:
    rewards = rollout_data["rewards"].view(-1, args.num_generations)
    centered = (rewards - rewards.mean(1, keepdim=True)).flatten()
    rollout_data.update({"advantages": centered[:, None] * rollout_data["response_mask"]})


def of_settings_over_all(args: Any, rollout_data: Any) -> None:
    rewards = rollout_data["rewards"].view(-1, args.num_generations)
    centered = (rewards - rewards.mean()).flatten()
    rollout_data.update(advantages=centered[:, None] * rollout_data["response_mask"])


def of_object(data: Any) -> None:
    labels, out = data.non_tensor_batch["uid"], torch.zeros_like(data.batch["rewards"])
    for label in set(labels):
        rows = torch.from_numpy(np.flatnonzero(labels == label))
        out[rows] = data.batch["rewards"][rows] - data.batch["rewards"][rows].mean()
    data.batch["advantages"] = out


def of_object_over_all(data: Any) -> None:
    assert len(data.non_tensor_batch["uid"])
    data.batch["advantages"] = data.batch["rewards"] - data.batch["rewards"].mean()


def of_rows(samples: list[Any]) -> None:
    for sample in samples:
        own = [float(other.reward) for other in samples if other.group_index == sample.group_index]
        sample.advantage = float(sample.reward) - sum(own) / len(own)


def of_rows_over_all(samples: list[Any]) -> None:
    rewards = [float(sample.reward) for sample in samples if sample.group_index is not None]
    for sample in samples:
        sample.advantage = float(sample.reward) - sum(rewards) / len(rewards)


@pytest.mark.parametrize("function", [of_dict, of_settings, of_object, of_rows])
def test_sound_ones_are_judged_and_have_no_fault(function: Any) -> None:
    result = rl_sentinel.check(function, stage="advantage", algorithm="grpo")
    assert result.ok, str(result)


@pytest.mark.parametrize("function", [of_dict_over_all, of_settings_over_all, of_object_over_all, of_rows_over_all])
def test_a_mean_over_all_prompts_is_a_fault(function: Any) -> None:
    result = rl_sentinel.check(function, stage="advantage", algorithm="grpo")
    assert "GRP001" in {finding.code for finding in result.findings if finding.level == "fault"}


def test_returns_that_are_written_are_compared() -> None:
    def estimate(batch: dict[str, Any], gamma: float = 0.9, lam: float = 0.8) -> None:
        rewards, values, mask = batch["token_rewards"], batch["values"], batch["mask"].bool()
        advantages = torch.zeros_like(rewards)
        last = following = torch.zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            delta = rewards[:, t] + gamma * following - values[:, t]
            last = torch.where(mask[:, t], delta + gamma * lam * last, last)
            following = torch.where(mask[:, t], values[:, t], following)
            advantages[:, t] = last * mask[:, t]
        batch["advantages"], batch["returns"] = advantages, (advantages + sign * values) * mask

    sign = 1.0
    assert rl_sentinel.check(estimate, stage="advantage", algorithm="gae").ok
    sign = -1.0
    result = rl_sentinel.check(estimate, stage="advantage", algorithm="gae")
    assert [(finding.code, finding.level) for finding in result.findings] == [("REF001", "fault")]


def test_a_function_without_a_result_says_so() -> None:
    def centered(rewards: Any, group: Any) -> None:
        del group
        rewards - rewards.mean()  # the result is lost

    result = rl_sentinel.check(centered, stage="advantage", algorithm="grpo")
    assert not result.ok
    words = "advantage of the result is None, expected a tensor: return the advantage, or write it into a dict that the"
    assert words in " ".join(str(result).split())


def test_which_functions_return_nothing() -> None:
    def early(batch: dict[str, Any]) -> Any:
        if not batch:
            return None
        batch["advantages"] = 0
        return

    def sometimes(batch: dict[str, Any]) -> Any:
        return batch["rewards"] if batch else None

    assert returns_nothing(early)
    assert not returns_nothing(sometimes)
    assert not returns_nothing(len)


def test_the_argument_is_the_one_that_is_written() -> None:
    two = {"args": Table({}), "batch": Table({})}
    assert written_argument(of_dict, "advantage", two, {"batch": ["adv"]}) == "batch"
    assert written_argument(of_dict, "advantage", two, {"batch": ["loss"]}) == ""
    assert written_argument(returned_and_written, "advantage", {"batch": Table({})}, {"batch": ["adv"]}) == ""
    assert written_argument(of_dict, "advantage", {"batch": Table({})}, {}) == "batch"
