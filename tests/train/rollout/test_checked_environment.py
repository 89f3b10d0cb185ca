"""An environment's answers: what is none of them is one line, with the recipe's key."""

import random
import re
from typing import Any

import numpy as np
import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.checked_environment import Showing, World, rehearse, world
from rl_sentinel.train.rollout.interfaces import Outcome, Task
from training import Letter, Marked, Twice, recipe

CHANCE = random.Random(0)


class Parrot:
    """Says whatever it is told to say."""

    def __init__(self, says: Any) -> None:
        """What it says."""
        self.says = says

    def _said(self) -> Any:
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says

    def task(self, rng: random.Random) -> Any:  # noqa: ARG002 - asked with it
        """It."""
        return self._said()

    def reply(self, task: Task, responses: Any, *, ended: bool) -> Any:  # noqa: ARG002 - asked with it
        """It."""
        return self._said()

    def warm(self, rng: random.Random) -> Any:  # noqa: ARG002 - asked with it
        """It."""
        return self._said()


def _asked(says: Any, function: str) -> Any:
    found: Any = world(Parrot(says), "mine.py:Own")
    asked = {
        "task": lambda: found.task(CHANCE),
        "reply": lambda: found.reply(Task("a", "a"), ["a"], ended=True),
        "warm": lambda: found.warm(CHANCE),
    }
    return asked[function]()


@pytest.mark.parametrize(
    ("function", "says", "line"),
    [
        ("task", ("a", "b"), "gave ('a', 'b'), expected a Task with a prompt"),
        ("task", Task(3, "b"), "gave Task(prompt=3, answer='b'), expected a Task"),  # type: ignore[arg-type]  # no kind
        ("task", KeyError("x"), "failed (KeyError: 'x', at "),
        ("reply", None, "gave None, expected text or an Outcome"),
        ("reply", (1.0, True), "gave (1.0, True), expected text or an Outcome"),
        ("reply", Outcome("1", correct=True), "gave an Outcome whose reward is '1', expected a number"),  # type: ignore[arg-type]  # no kind
        ("reply", Outcome(1.0, correct=True, parts=("1",)), "gave an Outcome whose parts is '1', expected a number"),  # type: ignore[arg-type]  # no kind
        ("reply", Outcome(1.0, correct=True, parts=None), "gave parts None, expected numbers"),  # type: ignore[arg-type]  # no kind
        ("reply", SystemExit(1), "failed (SystemExit: 1, at "),
        ("reply", StopIteration(), "failed (StopIteration, at "),
        ("warm", None, "gave None, expected a prompt, a response, and whether it ends"),
        ("warm", ("", "a", True), "gave ('', 'a', True), expected a prompt, a response"),
        ("warm", ("a", "a"), "gave ('a', 'a'), expected a prompt, a response"),
    ],
)
def test_what_is_no_answer_is_one_line(function: str, says: Any, line: str) -> None:
    """With the key, the function, and what it gave."""
    with pytest.raises(SentinelError) as told:
        _asked(says, function)
    assert str(told.value).startswith(f"environment.name 'mine.py:Own': {function}() {line}")
    assert "\n" not in str(told.value)


def test_answers_are_those_of_the_environment() -> None:
    """Numbers of numpy as plain ones, which the metrics can hold."""
    assert _asked(Task("a", "b"), "task") == Task("a", "b")
    assert _asked("|", "reply") == "|"
    found = _asked(Outcome(np.float32(0.5), np.True_, (np.int64(1),)), "reply")  # type: ignore[arg-type]  # of numpy
    assert (type(found.reward), type(found.correct), found) == (float, bool, Outcome(0.5, correct=True, parts=(1.0,)))
    assert _asked(["a", "b", 1], "warm") == ("a", "b", True)
    with pytest.raises(SentinelError, match=r"^said so$"):
        _asked(SentinelError("said so"), "reply")


def test_world_is_what_is_within() -> None:
    """Its parts, its module, and whether it shows anything."""
    found: Any = world(Marked(), "training:Marked")
    assert (found.parts, found.letters, type(found).__module__) == (("letter", "ended"), "ab", Letter.__module__)
    assert isinstance(found, Showing)
    assert not hasattr(world(Twice(), "training:Twice"), "warm")
    with pytest.raises(
        SentinelError, match=re.escape("environment.name 'm:n' is 3, expected task() and reply(): name")
    ):
        World(3, "m:n")


def test_first_task_is_drawn_before_anything_is_made() -> None:
    """And the first of what is shown."""
    with pytest.raises(SentinelError, match=r"^environment gave the prompt '', expected one or more tokens"):
        rehearse(world(Parrot(Task("", "")), "mine.py:Own"), recipe())
    with pytest.raises(SentinelError, match=r"task\(\) gave None"):
        rehearse(world(Parrot(None), "mine.py:Own"), recipe(policy={"load": "some/model"}))
    rehearse(world(Letter(), "training:Letter"), recipe(warm={"steps": 1}))
