"""Bindings of keys and fields by path, ``batch.adv``: used, or refused in one line."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import rl_sentinel
from rl_sentinel.core.errors import InputError

KL: dict[str, Any] = {"stage": "kl", "algorithm": "k1", "laws": ["REF001"]}


@dataclass
class Inner:
    """Fields with unknown names."""

    theirs: Tensor


@dataclass
class Policy:
    """Log-probs of two policies; a parameter of this class may have the name of something else."""

    ours: Tensor
    inner: Inner


def of_fields(policy: Policy) -> Tensor:
    return policy.ours - policy.inner.theirs


def of_keys(batch: dict[str, Tensor]) -> Tensor:
    return batch["ours"] - batch["ref_logprobs"]


def of_two_dicts(outputs: Any, batch: Any) -> Tensor:
    difference: Tensor = outputs["logprobs"] - batch["ref_logprobs"]
    return difference


def of_own_keys(outputs: Any, batch: Any) -> Tensor:
    difference: Tensor = outputs["ours"] - batch.theirs
    return difference


def of_a_dict_and_a_tensor(outputs: Any, color: Any) -> Tensor:
    difference: Tensor = outputs["logprobs"] - color.float()
    return difference


def of_dicts_in_an_object(data: Any) -> Any:
    kl = data.batch["logprobs"] - data.batch["ref_logprobs"]
    data.batch["kl"] = kl * data.meta["scale"]
    return data


def halved(data: Any) -> Any:
    data.batch["kl"] = (data.batch["logprobs"] - data.batch["ref_logprobs"]) / 2
    return data


def of_tensors(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    return logprobs - ref_logprobs


@pytest.mark.parametrize(
    ("function", "bind"),
    [
        (of_fields, {"policy.ours": "logprob", "policy.inner.theirs": "ref_logprob"}),
        (of_keys, {"batch.ours": "logprob"}),
        (of_two_dicts, {}),
        (of_own_keys, {"outputs.ours": "logprob", "batch.theirs": "ref_logprob"}),
        (of_dicts_in_an_object, {"data.meta.scale": 1}),
        (of_dicts_in_an_object, {"data.meta.scale": 1, "data.batch.ref_logprobs": "ref_logprob"}),
    ],
)
def test_paths_bind_fields_and_keys(function: Any, bind: dict[str, Any]) -> None:
    result = rl_sentinel.check(function, bind=bind, **KL)
    assert (result.ok, result.findings) == (True, ()), result


def test_a_fault_of_a_dict_in_an_object_is_found() -> None:
    assert [one.code for one in rl_sentinel.check(halved, **KL).findings] == ["REF001"]


@pytest.mark.parametrize(
    ("function", "bind", "words"),
    [
        (of_fields, {}, r"parameters 'policy\.ours', 'policy\.inner\.theirs' of unknown name"),
        (of_a_dict_and_a_tensor, {}, r"parameter 'color' of unknown name"),
        (of_dicts_in_an_object, {}, r"parameter 'data\.meta\.scale' of unknown name"),
        (
            of_dicts_in_an_object,
            {"data.batch.x": "logprob"},
            r"bind has data\.batch\.x, expected keys that .* data\.batch\.logp",
        ),
        (of_keys, {"batch.others": "logprob"}, r"bind has batch\.others, expected keys that of_keys reads: batch\."),
        (of_tensors, {"logprobs.x": "logprob"}, r"bind names logprobs\.x, but logprobs is not passed as a dict: if"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(function: Any, bind: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        rl_sentinel.check(function, bind=bind, **KL)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_function_of_the_batch_may_make_objects() -> None:
    def centered(items: Any, n_samples_per_prompt: int = 4) -> Any:
        rewards = torch.stack([one.reward for one in items]).reshape(-1, n_samples_per_prompt)
        return (rewards - rewards.mean(1, keepdim=True)).flatten()

    def items_of(batch: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(reward=r, mask=m) for r, m in zip(batch.reward, batch.mask, strict=True)]

    assert rl_sentinel.check(centered, stage="advantage", algorithm="grpo", bind={"items": items_of}).ok


def test_a_function_of_the_batch_is_no_second_name_of_its_column() -> None:
    def estimate(rewards: Any, values: Any, dones: Any, gamma: float = 0.9, lam: float = 0.8) -> Any:
        advantages, last = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
        for t in reversed(range(len(rewards))):
            follows = values[t + 1] if t + 1 < len(rewards) else 0.0
            last = rewards[t] + gamma * follows * (1 - dones[t]) - values[t] + gamma * lam * (1 - dones[t]) * last
            advantages[t] = last
        return advantages

    bind = {"dones": lambda batch: torch.zeros_like(batch.value.T)}
    assert rl_sentinel.check(estimate, stage="advantage", algorithm="gae", bind=bind).ok


@pytest.mark.slow
def test_a_key_named_as_a_model_may_hold_columns() -> None:
    def loss(batch: Any) -> Any:
        now, before = batch["actor"]["log_probs"], batch["actor"]["old_log_probs"]
        advantages, mask = batch["advantages"], batch["response_mask"]
        ratio = (now - before).exp()
        return (torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)) * mask).sum() / mask.sum()

    assert rl_sentinel.check(loss, stage="policy-loss", algorithm="grpo").ok


def of_two_named_dicts(policy: Any, reference: Any) -> Tensor:
    difference: Tensor = policy["logprobs"] - reference["logprobs"]
    return difference


def halved_of_two(policy: Any, reference: Any) -> Tensor:
    return of_two_named_dicts(policy, reference) / 2


def of_a_minibatch(mb: Any) -> Tensor:
    difference: Tensor = mb.logprobs - mb.ref_logprobs
    return difference


def of_two_named_keys(batch: Any) -> Tensor:
    now, then = batch["policy"]["logprobs"], batch["reference"]["ref_logprobs"]
    difference: Tensor = now - then
    return difference


@pytest.mark.parametrize(
    ("function", "bind"),
    [
        (of_two_named_dicts, {}),
        (of_two_named_dicts, {"policy.logprobs": "logprob", "reference.logprobs": "ref_logprob"}),
        (of_a_minibatch, {}),
        (of_two_named_keys, {}),
        (of_two_named_keys, {"batch.reference.ref_logprobs": "ref_logprob"}),
    ],
)
def test_a_dict_named_as_a_policy_holds_its_columns(function: Any, bind: dict[str, Any]) -> None:
    """The name of the dict completes that of the key: ``reference["logprobs"]`` are those of the reference."""
    assert rl_sentinel.check(function, bind=bind, **KL).ok
    assert [one.code for one in rl_sentinel.check(halved_of_two, **KL).findings] == ["REF001"]


def of_nested_settings(rewards: Any, cfg: Any) -> Any:
    size = cfg.rollout.n
    grouped = rewards.view(-1, size)
    centered = grouped - grouped.mean(1, keepdim=True)
    return (centered / (grouped.std(1, keepdim=True) + cfg.algorithm.adv_eps)).flatten()


def test_settings_in_settings_are_found_at_once() -> None:
    """A size does not hide what is read behind it; its own name is completed by that of its object."""
    grpo: dict[str, Any] = {"stage": "advantage", "algorithm": "grpo", "laws": ["REF001"]}
    with pytest.raises(InputError, match=r'bind=\{"cfg\.algorithm\.adv_eps": NUMBER\}'):
        rl_sentinel.check(of_nested_settings, **grpo)
    for bind in ({}, {"cfg.rollout.n": "group_size"}):
        assert rl_sentinel.check(of_nested_settings, bind={"cfg.algorithm.adv_eps": 1e-6, **bind}, **grpo).ok
