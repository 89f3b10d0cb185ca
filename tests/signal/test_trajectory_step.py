"""A step of a trajectory: entries of the wrong kind, number or value are refused in one line."""

import math
from typing import Any

import pytest

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.trajectory_step import Step


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
