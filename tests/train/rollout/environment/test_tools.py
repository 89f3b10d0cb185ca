"""Two turns with a tool."""

import random
import re
from collections import Counter

import pytest

from rl_sentinel.train.rollout.environment.tools import CHOOSES, REPEATS, TOOL_FOR, Environment
from rl_sentinel.train.rollout.interfaces import Outcome, Task

TASK, WRONG = Task("*>", "11 22 33 44 55"), Outcome(0.0, correct=False)


@pytest.mark.parametrize(
    ("said", "ended", "answer"),
    [
        (["a"], True, "|11>"),
        (["e"], True, "|55>"),
        (["f"], True, WRONG),
        (["ab"], True, WRONG),
        (["e"], False, WRONG),
        (["e", "55"], True, Outcome(1.0, correct=True)),
        (["e", "55"], False, WRONG),
        (["a", "55"], True, Outcome(1.0, correct=True)),
        (["a", "11"], True, WRONG),
    ],
)
def test_tool_answers_then_the_number_is_judged(said: list[str], ended: bool, answer: str | Outcome) -> None:  # noqa: FBT001 - a row of the table
    """A guess is right by its number, whichever tool was asked."""
    assert Environment().reply(TASK, said, ended=ended) == answer


def test_numbers_differ_so_that_only_one_tool_is_right() -> None:
    """Five numbers of two digits; every question is asked."""
    tasks = [Environment().task(random.Random(n)) for n in range(100)]
    assert {t.prompt[0] for t in tasks} == set(TOOL_FOR)
    assert all(len({*t.answer.split()}) == 5 and all(len(n) == 2 for n in t.answer.split()) for t in tasks)
    assert sorted(TOOL_FOR.values()) == list("abcde")


def test_warm_start_shows_both_turns_in_their_shares() -> None:
    """Of two thousand, within four deviations of the count."""
    chance, seen = random.Random(0), Counter[str]()
    for _ in range(2000):
        prompt, said, ends = Environment().warm(chance)
        assert ends
        if len(prompt) == 2:
            seen["first"] += 1
            seen["right tool"] += said == TOOL_FOR[prompt[0]]
        else:
            assert re.fullmatch(r"[-+*/=]>[a-e]\$\|\d\d>", prompt)
            seen["repeated"] += prompt[5:7] == said
    assert abs(seen["first"] - 1000) < 90
    assert abs(seen["right tool"] - CHOOSES * seen["first"]) < 60
    assert abs(seen["repeated"] - REPEATS * (2000 - seen["first"])) < 70
