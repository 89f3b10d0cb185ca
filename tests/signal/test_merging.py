"""Merging, by hand and for random conversations: tokens and rewards are conserved."""

import math
from dataclasses import replace
from typing import Any

import pytest

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.merging import Step, counts, merge


def _step(prompt: list[int], response: list[int], *, last: bool = False, reward: float = 0.0, who: str = "a") -> Step:
    trained = tuple(t != 0 for t in response)
    paid = (0.0,) * (len(response) - 1) + (reward,)
    sampled = tuple(-float(t) for t in response)
    return Step(who, tuple(prompt), tuple(response), trained, paid, sampled, last=last)


def test_full_merge() -> None:
    steps = [
        _step([1, 2], [3, 4], reward=0.25),
        _step([1, 2, 3, 4, 9, 9], [5, 6], reward=0.5),
        _step([1, 2, 3, 4, 9, 9, 5, 6], [8, 0, 7], reward=1.0, last=True),
    ]
    (found,) = merge(steps)
    assert found.prompt == (1, 2)
    assert found.response == (3, 4, 9, 9, 5, 6, 8, 0, 7)
    assert found.trained == (True, True, False, False, True, True, True, False, True)
    assert found.token_reward == (0.0, 0.25, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0)
    assert found.logprob == (-3.0, -4.0, 0.0, 0.0, -5.0, -6.0, -8.0, 0.0, -7.0)
    assert found.last
    assert counts(steps, [found]) == {"num_seq_before_merge": 3, "num_seq_after_merge": 1}


def test_no_merge_and_partial_merge() -> None:
    apart = [_step([1], [2]), _step([1, 7], [3]), _step([5], [4], last=True)]
    assert merge(apart) == apart
    part = [_step([1], [2]), _step([1, 2, 9], [3]), _step([9], [4]), _step([9, 4], [6], last=True)]
    found = merge(part)
    assert [s.response for s in found] == [(2, 9, 3), (4, 6)]
    assert [s.last for s in found] == [False, True]


def test_trajectories_stay_apart() -> None:
    steps = [_step([1], [2], last=True), _step([1, 2], [3], last=True, who="b")]
    assert merge(steps) == steps


def test_what_would_lose_a_tail_is_refused() -> None:
    with pytest.raises(ValueError, match="trajectory a stops at a step that is not last, expected its steps"):
        merge([_step([1], [2]), _step([1, 2], [3])])
    with pytest.raises(ValueError, match="trajectory a continues after it ended"):
        merge([_step([1], [2], last=True), _step([1, 2], [3], last=True)])
    with pytest.raises(ValueError, match="trajectory a stops at a step that is not last"):
        merge([_step([1], [2]), _step([1], [2], who="b", last=True), _step([1, 2], [3], last=True)])
    with pytest.raises(ValueError, match="logprob of a step of trajectory a has 0 entries, expected 1"):
        replace(_step([1], [2]), logprob=())


def test_nothing_is_merged_to_nothing() -> None:
    assert merge([]) == []


@pytest.mark.parametrize(
    ("column", "entries", "told"),
    [
        ("trained", (0.5, 0.0), r"^trained\[0\] of a step of trajectory a is 0\.5, expected True or False$"),
        (
            "response",
            (2, 3.5),
            r"^response\[1\] of a step of trajectory a is 3\.5, expected a token: an integer of at",
        ),
        ("prompt", (2**70,), r"^prompt\[0\] of a step"),
        ("logprob", (None, None), r"^logprob\[0\] of a step of trajectory a is None, expected a number$"),
        (
            "token_reward",
            (0.0, math.nan),
            r"^token_reward\[1\] of a step of trajectory a is nan, expected a finite number",
        ),
        ("last", "no", r"^last is 'no', expected a bool"),
        ("trajectory", ["a"], r"^trajectory is \['a'\], expected a str"),
    ],
)
def test_entries_are_what_they_are_called(column: str, entries: object, told: str) -> None:
    sound: dict[str, Any] = {
        "trajectory": "a",
        "prompt": (1,),
        "response": (2, 3),
        "trained": (False, True),
        "token_reward": (math.inf, 0.5),
        "logprob": (math.nan, -1.0),
        "last": True,
    }
    assert Step(**sound).response == (2, 3)
    with pytest.raises(InputError, match=told):
        Step(**{**sound, column: entries})


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("trajectory", 3, "trajectory is 3, expected a str"),
        ("last", 1, "last is 1, expected "),
        ("response", [2], "response of a step of trajectory a is [2], expected a tuple"),
        ("response", (True,), "response[0] of a step of trajectory a is True, expected a token"),
        ("prompt", (1, 2**63), "prompt[1] of a step of trajectory a is 9223372036854775808, expected a token"),
        ("trained", (1,), "trained[0] of a step of trajectory a is 1, expected True or False"),
        ("token_reward", ("1",), "token_reward[0] of a step of trajectory a is '1', expected a number"),
        ("logprob", (None,), "logprob[0] of a step of trajectory a is None, expected a number"),
    ],
)
def test_field_of_another_type_is_one_line(field: str, value: object, expected: str) -> None:
    fields: dict[str, Any] = {"trajectory": "a", "prompt": (1,), "response": (2,), "trained": (True,), "last": True}
    fields |= {"token_reward": (0.0,), "logprob": (-1.0,)}
    with pytest.raises(InputError) as refused:
        Step(**{**fields, field: value})
    assert str(refused.value).startswith(expected)
