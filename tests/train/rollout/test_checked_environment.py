"""Invalid answers of an environment are one line, with the recipe's key."""

import random
import re
from typing import Any

import numpy as np
import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.checked_environment import (
    CheckedEnvironment,
    CheckedWarmStartEnvironment,
    try_environment,
    wrap_environment,
)
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from training import Letter, TwoParts, TwoTurns, recipe

RNG = random.Random(0)


class Fixed:
    """Returns or raises a given value."""

    def __init__(self, answer: Any) -> None:
        self.says = answer

    def _answer(self) -> Any:
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says

    def task(self, rng: random.Random) -> Any:  # noqa: ARG002 - part of the interface
        return self._answer()

    def reply(self, task: Task, responses: Any, *, ended: bool) -> Any:  # noqa: ARG002 - part of the interface
        return self._answer()

    def warm(self, rng: random.Random) -> Any:  # noqa: ARG002 - part of the interface
        return self._answer()


def _call(answer: Any, function: str) -> Any:
    environment: Any = wrap_environment(Fixed(answer), "mine.py:Own")
    calls = {
        "task": lambda: environment.task(RNG),
        "reply": lambda: environment.reply(Task("a", "a"), ["a"], ended=True),
        "warm": lambda: environment.warm(RNG),
    }
    return calls[function]()


def test_wrong_reply_of_several_names_the_method() -> None:
    """A method that replies to several requests at once is not called ``reply``."""

    class Batched(Fixed):
        def replies(self, requests: Any) -> Any:
            return [self.says for _ in requests]

    environment: Any = wrap_environment(Batched(None), "mine.py:Own")
    with pytest.raises(SentinelError, match=r"replies\(\) returned None, expected a text or an Outcome"):
        environment.replies([(Task("a", "a"), ("a",), True)])


@pytest.mark.parametrize(
    ("function", "answer", "line"),
    [
        ("task", ("a", "b"), "returned ('a', 'b'), expected a Task of rl_sentinel.train.rollout.interfaces whose"),
        ("task", Task(3, "b"), "returned Task(prompt=3, answer='b'), expected a Task"),  # type: ignore[arg-type]  # the wrong type
        ("task", KeyError("x"), "raised KeyError: 'x', at "),
        ("reply", None, "returned None, expected a text or an Outcome"),
        ("reply", (1.0, True), "returned (1.0, True), expected a text or an Outcome"),
        ("reply", Outcome("1", correct=True), "returned an Outcome whose reward is '1', expected an Outcome"),  # type: ignore[arg-type]  # the wrong type
        ("reply", Outcome(1.0, correct=True, parts=("1",)), "returned an Outcome whose parts[0] is '1'"),  # type: ignore[arg-type]  # the wrong type
        (
            "reply",
            Outcome(1.0, correct=True, parts=None),  # type: ignore[arg-type]  # the wrong type
            "returned an Outcome whose parts are None, expected an Outcome",
        ),
        ("reply", SystemExit(1), "raised SystemExit: 1, at "),
        ("reply", StopIteration(), "raised StopIteration, at "),
        ("warm", None, "returned None, expected (prompt, response, ends): two strings"),
        ("warm", ("", "a", True), "returned ('', 'a', True), expected (prompt, response, ends): two strings"),
        ("warm", ("a", "a"), "returned ('a', 'a'), expected (prompt, response, ends): two strings"),
    ],
)
def test_invalid_answer_is_one_line(function: str, answer: Any, line: str) -> None:
    with pytest.raises(SentinelError) as error:
        _call(answer, function)
    assert str(error.value).startswith(f"environment.name 'mine.py:Own': {function}() {line}")
    assert "\n" not in str(error.value)


def test_valid_answers_pass() -> None:
    assert _call(Task("a", "b"), "task") == Task("a", "b")
    assert _call("|", "reply") == "|"
    outcome = _call(Outcome(np.float32(0.5), np.True_, (np.int64(1),)), "reply")  # type: ignore[arg-type]  # of numpy
    assert outcome == Outcome(0.5, correct=True, parts=(1.0,))
    assert (type(outcome.reward), type(outcome.correct)) == (float, bool)
    assert type(_call(Outcome(0.5, np.True_), "reply").correct) is bool  # type: ignore[arg-type]  # of numpy
    assert _call(["a", "b", 1], "warm") == ("a", "b", True)
    with pytest.raises(SentinelError, match=r"^out of tasks$"):
        _call(SentinelError("out of tasks"), "reply")


def test_other_attributes_are_the_inner_environments() -> None:
    environment: Any = wrap_environment(TwoParts(), "training:TwoParts")
    assert (environment.parts, environment.letters) == (("letter", "ended"), "ab")
    assert type(environment).__module__ == Letter.__module__
    assert isinstance(environment, CheckedWarmStartEnvironment)
    assert not hasattr(wrap_environment(TwoTurns(), "training:TwoTurns"), "warm")
    with pytest.raises(
        SentinelError,
        match=re.escape("environment.name 'm:n' is 3, expected methods task() or numbered_task(), and rep"),
    ):
        CheckedEnvironment(3, "m:n")


def test_first_task_is_drawn_before_a_model_is_loaded() -> None:
    with pytest.raises(SentinelError, match=r"^prompt of the environment is '', expected one or more tokens"):
        try_environment(wrap_environment(Fixed(Task("", "")), "mine.py:Own"), recipe())
    with pytest.raises(SentinelError, match=r"task\(\) returned None"):
        try_environment(wrap_environment(Fixed(None), "mine.py:Own"), recipe(policy={"load": "some/model"}))
    try_environment(wrap_environment(Letter(), "training:Letter"), recipe(warm={"steps": 1}))
