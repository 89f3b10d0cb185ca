"""Prompt ids that a function uses as keys of a dict are passed as a list."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from adapters.checks import the_only
from rl_sentinel.adapters.live_target import live_target
from rl_sentinel.adapters.user_function import Statement, describe


def by_key(rewards: Tensor, group_ids: Any) -> Tensor:
    ids, of_prompt = list(group_ids), defaultdict(list)
    for one, reward in zip(ids, rewards, strict=True):
        of_prompt[one].append(reward)
    means = {one: torch.stack(found).mean() for one, found in of_prompt.items()}
    return torch.stack([reward - means[one] for one, reward in zip(ids, rewards, strict=True)])


def by_number(rewards: Tensor, group_ids: Any) -> Tensor:
    return by_key(rewards, [int(one) for one in group_ids])


def by_comparison(rewards: Tensor, group_ids: Any) -> Tensor:
    same = torch.as_tensor(group_ids)[:, None] == torch.as_tensor(group_ids)[None]
    return rewards - (same * rewards).sum(1) / same.sum(1)


def unread(rewards: Tensor, group_ids: Any) -> Tensor:
    return rewards - rewards.mean()


def described(function: Any, **bind: str) -> tuple[object, str]:
    """What the function gets as ids, and the notes about it."""
    target = live_target(function)
    found = the_only(describe(target, target.path, Statement(stage="advantage", bind=bind)))
    codec: Any = found.steps[0].arguments["group_ids"]
    return codec.form, "\n".join(note for note in found.notes if "keys of a dict" in note)


def test_ids_as_keys_are_passed_as_a_list() -> None:
    kind, note = described(by_key)
    assert kind == "list"
    assert 'state this with bind={"group_ids": "group[list]"}' in note


def test_other_functions_get_a_tensor() -> None:
    assert {described(function) for function in (by_number, by_comparison, unread)} == {("tensor", "")}


def test_stated_ids_are_kept() -> None:
    assert described(by_key, group_ids="group[list]") == ("list", "")
    assert described(by_key, group_ids="group[B]") == ("tensor", "")
