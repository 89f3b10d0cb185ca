"""Reward functions: what they are given, how they are combined, and what a bad one costs."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

import reward_functions
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.interfaces import Outcome
from rl_sentinel.train.rollout.rewards import build_rewards, score_all

KEY = "environment.reward"
PLACE = "reward_functions:"


@pytest.fixture(autouse=True)
def _released() -> Iterator[None]:
    reward_functions.RELEASED.clear()
    yield
    reward_functions.RELEASED.set()


def _score(value: Any, *responses: dict[str, Any]) -> list[Outcome]:
    rewards = build_rewards(KEY, value, ["bonus"])
    return score_all(rewards, [{"bonus": 0.5, "prompt": "q", "ended": True, **r} for r in responses], correct_from=1.0)


def test_weighted_sum_of_plain_and_async_functions() -> None:
    tables = [
        {"function": f"{PLACE}letters", "weight": 2.0},
        {"function": f"{PLACE}short", "name": "brief", "weight": -1.0, "seconds": 3.0},
        {"function": f"{PLACE}column"},
    ]
    assert [r.name for r in build_rewards(KEY, tables, ["bonus"])] == ["letters", "brief", "column"]
    outcomes = _score(tables, {"response": "aaa", "answer": "a"}, {"response": "a", "answer": "b"})
    assert outcomes == [
        Outcome(2.5, correct=True, parts=(1.0, 0.0, 0.5)),
        Outcome(-0.5, correct=False, parts=(0.0, 1.0, 0.5)),
    ]


def test_keyword_arguments_are_everything() -> None:
    (outcome,) = _score(f"{PLACE}everything", {"response": "", "answer": "a"})
    assert outcome.reward == 5  # prompt, response, answer, ended and the column


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails_on_b", r"'reward_functions:fails_on_b' raised ValueError: no b at all, at .*reward_functions.py:\d+"),
        (
            "hangs_on_b",
            "'reward_functions:hangs_on_b' gave no result within 0.2 s: make the function faster, or raise `seconds`",
        ),
        ("hangs_later_on_b", "'reward_functions:hangs_later_on_b' gave no result within 0.2 s"),
    ],
)
def test_failure_costs_its_own_response(name: str, words: str) -> None:
    value = [{"function": f"{PLACE}{name}", "seconds": 0.2}, {"function": f"{PLACE}short"}]
    responses = [{"response": "x", "answer": answer} for answer in "aba"]
    outcomes = _score(value, *responses)
    assert [o.reward for o in outcomes] == [2.0, 0.0, 2.0]
    assert [bool(o.failure) for o in outcomes] == [False, True, False]
    assert outcomes[1].parts == (0.0, 0.0)
    assert "\n" not in outcomes[1].failure
    assert re.match(rf"environment.reward\[0\] {words}", outcomes[1].failure)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raised KeyError: 'x'"),
        ("raises_later", "raised KeyError: 'x'"),
        ("returns_text", "returned 'x', expected a finite number"),
        ("returns_nan", "returned nan, expected a finite number"),
        ("returns_too_much", "returned 1e+200, expected a magnitude of at most 3.40282e+38 (float32)"),
        ("returns_a_huge_integer", "returned 1000"),
        ("returns_two_numbers", "returned a tensor of shape [2], expected a finite number"),
    ],
)
def test_bad_result_is_a_failure_in_one_line(name: str, words: str) -> None:
    (outcome,) = _score(f"{PLACE}{name}", {"response": "x", "answer": "a"})
    assert outcome.failure.startswith(f"{KEY} '{PLACE}{name}' {words}")
    assert "\n" not in outcome.failure


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            3,
            r"environment.reward is 3, expected a function, such as \"file.py:function\", or a list of tables, such as",
        ),
        ([], r"environment.reward is \[\], expected a function"),
        ([{"function": "nowhere:f"}], r"environment.reward 'nowhere:f' cannot be imported \(No module named"),
        ([{"weight": 1.0}], r"environment.reward.function is missing, expected a value: add function"),
        (
            [{"function": f"{PLACE}letters", "seconds": 0.0}],
            "environment.reward.seconds is 0.0, expected more than 0",
        ),
        ([{"function": f"{PLACE}letters", "limit": 3}], "environment.reward.limit is unknown, expected"),
        (f"{PLACE}NOT_A_FUNCTION", "environment.reward 'reward_functions:NOT_A_FUNCTION' is 3, expected a function"),
        (
            f"{PLACE}unknown_argument",
            "takes mood, expected parameters named prompt, response, answer, ended, bonus: rename the parameter",
        ),
        (
            f"{PLACE}by_place",
            "'reward_functions:by_place' takes response by position, expected parameters by name: remove `/`",
        ),
        (
            f"{PLACE}any_number",
            r"'reward_functions:any_number' takes \*values by position, expected parameters by name: remove `/`",
        ),
        (
            "builtins:max",
            "environment.reward 'builtins:max' has no signature, expected a Python function: wrap it in one",
        ),
        ("reward_functions:leters", "'leters' is not defined in reward_functions, the nearest is 'letters'"),
        (
            "nowhere.py:f",
            r"is 'nowhere.py:f', expected an existing file: /.*nowhere.py is not a file, fix the path",
        ),
        ([{"function": f"{PLACE}short"}] * 2, "environment.reward has two functions named 'short'"),
    ],
)
def test_invalid_functions_are_one_line(value: Any, line: str) -> None:
    with pytest.raises(SentinelError, match=line) as error:
        build_rewards(KEY, value, ["bonus"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["returns_an_array", "returns_a_tensor"])
def test_an_array_or_tensor_with_one_entry_is_a_number(name: str) -> None:
    (outcome,) = _score(f"{PLACE}{name}", {"response": "x", "answer": "a"})
    assert (outcome.reward, outcome.failure) == (0.5, "")


def test_a_sum_that_overflows_costs_its_own_response() -> None:
    value = [{"function": f"{PLACE}short"}, {"function": f"{PLACE}returns_much_for_b", "weight": 10.0}]
    fine, failed = _score(value, *({"response": "x", "answer": answer} for answer in "ab"))
    assert not fine.failure
    assert failed.failure == (
        f"{KEY}[1] '{PLACE}returns_much_for_b' with weight 10 makes the sum of rewards 3e+39, expected a magnitude "
        "of at most 3.40282e+38 (float32)"
    )
