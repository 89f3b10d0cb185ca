"""Ids of prompts that are texts under some names, and numbers where the user states so."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rl_sentinel

_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "dr_grpo", "budget": 5, "laws": ["REF001", "GRP002"]}


def of_numbers(rewards: Tensor, uids: Any) -> Tensor:
    """Centre the rewards of each prompt, with tensor operations on the ids."""
    same = (uids.unsqueeze(0) == uids.unsqueeze(1)).to(rewards.dtype)
    centred: Tensor = rewards - same @ rewards / same.sum(1)
    return centred


def mixed(rewards: Tensor, uids: Any) -> Tensor:
    """Centre the rewards on the mean of the whole batch."""
    centred: Tensor = rewards - rewards.mean() + 0.0 * uids.unsqueeze(0).sum(0)
    return centred


def in_a_dict(batch: dict[str, Tensor]) -> Tensor:
    """The same, of keys."""
    return of_numbers(batch["rewards"], batch["uids"])


def of_arrays(rewards: Tensor, index: np.ndarray) -> Tensor:
    """The same, of an array of numbers."""
    return of_numbers(rewards, torch.as_tensor(index))


@pytest.mark.parametrize(("function", "path"), [(of_numbers, "uids"), (in_a_dict, "batch.uids"), (of_arrays, "index")])
def test_a_stated_dtype_passes_numbers(function: Any, path: str) -> None:
    assert rl_sentinel.check(function, bind={path: "group[B] int64"}, **_ADVANTAGE).ok


def test_a_fault_shows_with_numbers() -> None:
    assert not rl_sentinel.check(mixed, bind={"uids": "group[B] int64"}, **_ADVANTAGE).ok


@pytest.mark.parametrize(("function", "path"), [(of_numbers, "uids"), (in_a_dict, "batch.uids")])
def test_a_failure_on_texts_says_how_to_pass_numbers(function: Any, path: str) -> None:
    result = rl_sentinel.check(function, **_ADVANTAGE)
    assert not result.ok
    hint = f'; {path} has texts: bind={{"{path}": "group[B] int64"}} passes numbers'
    assert hint in " ".join(str(result).split())


def by_remainder(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Centre the rewards by the remainder of the id."""
    count = len(set(group_ids.tolist()))
    return of_numbers(rewards, group_ids % count)


def test_a_remainder_is_no_id() -> None:
    """Right for ids from 0 to G - 1 only."""
    assert [one.code for one in rl_sentinel.check(by_remainder, **_ADVANTAGE).findings] == ["GRP002"]
