"""The tools environment."""

import random
import re
from collections import Counter

import pytest

from rl_sentinel.train.rollout.environment.tools import CHOOSES, REPEATS, TOOL_FOR, Environment
from rl_sentinel.train.rollout.interfaces import Outcome, Task

TASK, WRONG = Task("*>", "11 22 33 44 55"), Outcome(0.0, correct=False)


@pytest.mark.parametrize(
    ("responses", "ended", "answer"),
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
def test_tool_replies_then_the_number_is_scored(responses: list[str], ended: bool, answer: str | Outcome) -> None:
    assert Environment().reply(TASK, responses, ended=ended) == answer


def test_numbers_are_distinct() -> None:
    tasks = [Environment().task(random.Random(n)) for n in range(100)]
    assert {t.prompt[0] for t in tasks} == set(TOOL_FOR)
    assert all(len({*t.answer.split()}) == 5 and all(len(n) == 2 for n in t.answer.split()) for t in tasks)
    assert sorted(TOOL_FOR.values()) == list("abcde")


def test_warm_start_has_both_turns() -> None:
    rng, counts = random.Random(0), Counter[str]()
    for _ in range(2000):
        prompt, response, ends = Environment().warm(rng)
        assert ends
        if len(prompt) == 2:
            counts["first"] += 1
            counts["right tool"] += response == TOOL_FOR[prompt[0]]
        else:
            assert re.fullmatch(r"[-+*/=]>[a-e]\$\|\d\d>", prompt)
            counts["repeated"] += prompt[5:7] == response
    assert abs(counts["first"] - 1000) < 90
    assert abs(counts["right tool"] - CHOOSES * counts["first"]) < 60
    assert abs(counts["repeated"] - REPEATS * (2000 - counts["first"])) < 70
