"""Ids of prompts that are texts under some names, and numbers where the user states so."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rl_sentinel

_ADVANTAGE: dict[str, Any] = {"stage": "advantage", "algorithm": "dr_grpo", "budget": 5, "laws": ["REF001", "GRP002"]}


def of_numbers(rewards: Tensor, uids: Any) -> Tensor:
    """Center the rewards of each prompt, with tensor operations on the ids."""
    same = (uids.unsqueeze(0) == uids.unsqueeze(1)).to(rewards.dtype)
    centered: Tensor = rewards - same @ rewards / same.sum(1)
    return centered


def mixed(rewards: Tensor, uids: Any) -> Tensor:
    """Center the rewards on the mean of the whole batch."""
    centered: Tensor = rewards - rewards.mean() + 0.0 * uids.unsqueeze(0).sum(0)
    return centered


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
    hint = f'; {path} was passed as strings: bind={{"{path}": "group[B] int64"}} passes numbers'
    assert hint in " ".join(str(result).split())


def by_remainder(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Center the rewards by the remainder of the id."""
    count = len(set(group_ids.tolist()))
    return of_numbers(rewards, group_ids % count)


def test_a_remainder_is_no_id() -> None:
    """Right for ids from 0 to G - 1 only."""
    assert [one.code for one in rl_sentinel.check(by_remainder, **_ADVANTAGE).findings] == ["GRP002"]


def _by_key(rewards: Tensor, ids: Any, center: Any) -> Tensor:
    """Fill in what ``center`` makes of the rows of each id, which is a key of a dict."""
    rows: dict[Any, list[int]] = {}
    for row, one in enumerate(ids):
        rows.setdefault(one, []).append(row)
    out = torch.zeros_like(rewards)
    for members in rows.values():
        out[members] = center(members)
    return out


def by_key(rewards: Tensor, group_ids: Any) -> Tensor:
    """Center the rewards of each prompt."""
    return _by_key(rewards, group_ids, lambda rows: rewards[rows] - rewards[rows].mean())


def scaled_by_key(rewards: Tensor, group_ids: Any) -> Tensor:
    """The same, twice too large."""
    return 2 * by_key(rewards, group_ids)


def by_key_of_batch(rewards: Tensor, group_ids: Any) -> Tensor:
    """Center the rewards on the prompt, and divide by the deviation of the batch; a tensor of ids gives zeros."""
    return by_key(rewards, group_ids) / (rewards.std() + 1e-6)


def by_key_in_a_dict(batch: dict[str, Any]) -> Tensor:
    """The fault, of a dict."""
    return scaled_by_key(batch["rewards"], batch["prompt_uids"])


@pytest.mark.parametrize(
    ("function", "path"),
    [(scaled_by_key, "group_ids"), (by_key_of_batch, "group_ids"), (by_key_in_a_dict, "batch.prompt_uids")],
)
def test_ids_that_are_keys_are_a_list(function: Any, path: str) -> None:
    result = rl_sentinel.check(function, **{**_ADVANTAGE, "laws": ["REF001", "GRP001"]})
    assert "REF001" in {one.code for one in result.faults}, result
    assert any(note.startswith(f"the function uses {path} as keys of a dict") for note in result.notes)


def test_a_sound_function_of_keys_says_what_a_tensor_does() -> None:
    result = rl_sentinel.check(by_key, **_ADVANTAGE)
    assert (result.ok, result.findings) == (True, ())
    (note,) = result.notes
    assert "group_ids was passed as a list instead" in note


def ignores_ids(rewards: Tensor, group_ids: Any) -> Tensor:
    """Ids that are read and have no effect, as a tensor and as a list."""
    return by_key(rewards, group_ids) * 0 + rewards - rewards.mean()


@pytest.mark.parametrize("function", [ignores_ids, by_remainder])
def test_other_ids_stay_a_tensor(function: Any) -> None:
    assert not any("group[list]" in note for note in rl_sentinel.check(function, **_ADVANTAGE).notes)
