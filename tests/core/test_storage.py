"""Cases go through JSON and come back the same, non-finite numbers too."""

import json
import math
from typing import Any

import pytest
import torch

from rl_sentinel.core.batch import COLUMNS, with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.storage import case_as_json, case_from_json
from rl_sentinel.search.filled_batch import filled
from rl_sentinel.search.random_cases import random_case


@pytest.mark.parametrize("seed", range(5))
def test_round_trip(seed: int) -> None:
    case = Case(random_case(seed).batch, "x", {"a": 1}, {"row": 2}, 7)
    back = case_from_json(json.loads(json.dumps(case_as_json(case, COLUMNS))))
    assert all(torch.equal(getattr(case.batch, n), getattr(back.batch, n)) for n in COLUMNS)
    assert (back.setting, dict(back.override), dict(back.draw), back.seed) == ("x", {"a": 1}, {"row": 2}, 7)


def test_not_a_number_has_a_word() -> None:
    case = random_case(1)
    odd = torch.full_like(case.batch.reward, math.nan)
    text = json.dumps(case_as_json(Case(with_columns(case.batch, reward=odd)), ["reward"]), allow_nan=False)
    assert case_from_json(json.loads(text)).batch.reward.isnan().all()


def _damaged(change: dict[str, Any], **top: Any) -> str:
    batch = filled([[1, 1], [1, 0]], reward=[1, 0], group=[0, 1], length=[2, 1])
    data = json.loads(json.dumps(case_as_json(Case(batch), ["reward"])))
    for name, value in change.items():
        column, _, key = name.partition("/")
        data["batch"].setdefault(column, {"dtype": "int64"})[key or "values"] = value
    with pytest.raises(SentinelError) as told:
        case_from_json(data | top)
    begin, end = "case is damaged (", "), expected a case that an audit wrote: audit again"
    assert str(told.value).startswith(begin)
    assert str(told.value).endswith(end)
    return str(told.value)[len(begin) : -len(end)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": [1.0]}, "batch[reward] has shape [1], expected [2] (axes B; B = 2 in batch[mask])"),
        ({"reward": 1.0}, "batch[reward] contains 1.0, expected nested lists with the axes B"),
        ({"reward": [1.0, "far"]}, "batch[reward] contains 'far', expected numbers nested by the axes B"),
        ({"reward": [1.0, [2.0]]}, "batch[reward] contains a list, expected numbers nested by the axes B"),
        ({"reward": [1.0, True]}, "batch[reward] contains True, expected numbers nested by the axes B"),
        (
            {"reward/dtype": "load"},
            "batch[reward] has dtype 'load', expected float32 or float64 or bfloat16 or float16",
        ),
        ({"group": [0, 0.5]}, "batch[group] contains 0.5, expected integers nested by the axes B"),
        ({"mask": [[1, 1], [1, 0]]}, "batch[mask] contains 1, expected true or false nested by the axes B T"),
        ({"mask": []}, "batch[mask] has shape [0], expected [B, T]"),
        (
            {"mask": [[True, True], [True, True]], "length": [1, 2]},
            "batch[mask] is True at row 0, token 1, expected True only before batch[length], which is 1 there",
        ),
        ({"length": [3, 1]}, "batch[length] contains 3, expected 0 to 2"),
        ({"prompt_length": [1, 10**9]}, "batch[prompt_length] contains 1000000000, expected 1 to 4096"),
        ({"excluded": [0, 6]}, "batch[excluded] contains 6, expected 0 to 5"),
        ({"token": [[0, 1], [3, 0]]}, "batch[token] contains 3, expected 0 to 2"),
        ({"turn": [[0, -1], [0, 0]]}, "batch[turn] contains -1, expected 0 to 4096"),
    ],
)
def test_damaged_column_is_told(change: dict[str, Any], words: str) -> None:
    assert _damaged(change) == words


@pytest.mark.parametrize(
    ("top", "words"),
    [
        ({"override": [1]}, "override is a list, expected an object with numbers, strings, booleans or null"),
        ({"override": {"a": [1]}}, "override[a] is a list, expected a number, a string, a boolean or null"),
        ({"draw": 3}, "draw is 3, expected an object with numbers, strings, booleans or null"),
        ({"seed": -1}, "seed is -1, expected a whole number from 0 to 9223372036854775807"),
        ({"seed": "1"}, "seed is '1', expected a whole number from 0 to 9223372036854775807"),
        ({"setting": 1}, "setting is 1, expected a string"),
        ({"batch": 1}, "a value has a wrong type: 'int' object has no attribute 'items'"),
    ],
)
def test_damaged_case_is_told(top: dict[str, Any], words: str) -> None:
    assert _damaged({}, **top) == words


def test_missing_and_unknown_names_are_told() -> None:
    assert _damaged({"color": [1]}).startswith("batch[color] is not a column, expected one of group, ")
    assert _damaged({"group": [10**30, 0]})
    data = case_as_json(random_case(1), ["reward"])
    del data["batch"]["mask"]
    message = r"^case is damaged \('mask' is missing\), expected a case that an audit wrote: audit again$"
    with pytest.raises(SentinelError, match=message):
        case_from_json(data)
