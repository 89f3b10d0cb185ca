"""The sort environment."""

import random
from collections import Counter

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.sort import BEHAVIORS, Environment
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@pytest.mark.parametrize(
    ("response", "ended", "parts"),
    [
        ("0123", True, (1.0, 1.0)),
        ("0123", False, (0.0, 0.0)),
        ("3210", True, (1.0, 0.0)),
        ("01234", True, (0.0, 1.0)),
        ("43", True, (0.0, 0.0)),
    ],
)
def test_sorted_digits_with_an_end_are_rewarded(response: str, ended: bool, parts: tuple[float, float]) -> None:
    environment, right = Environment(digits=4), parts == (1.0, 1.0)
    assert environment.reply(Task("3021>", "0123"), [response], ended=ended) == Outcome(float(right), right, parts)


def test_task_has_its_sorted_digits() -> None:
    task = Environment(digits=7).task(random.Random(0))
    assert task.prompt.endswith(">")
    assert sorted(task.prompt[:-1]) == list(task.answer)
    assert len(task.answer) == 7


def test_warm_start_has_the_mixture() -> None:
    environment, rng = Environment(), random.Random(0)
    counts = Counter[str]()
    for _ in range(1000):
        prompt, response, ends = environment.warm(rng)
        answer = "".join(sorted(prompt[:-1]))
        kinds = {"right": answer, "reversed": answer[::-1], "copied": prompt[:-1]}
        assert ends or (response.startswith(answer) and len(response) == 13)
        counts["rambling" if not ends else next(k for k, v in kinds.items() if v == response)] += 1
    for kind, share in BEHAVIORS.items():
        assert abs(counts[kind] - 1000 * share) < 64


def test_rambling_may_be_rewarded() -> None:
    environment = Environment(digits=2, rambling=0.5)
    assert environment.reply(Task("21>", "12"), ["1212"], ended=False) == Outcome(2.0, correct=False, parts=(0.0, 0.0))
    assert environment.reply(Task("21>", "12"), ["12"], ended=True) == Outcome(1.0, correct=True, parts=(1.0, 1.0))


def test_number_of_digits_is_validated() -> None:
    with pytest.raises(SentinelError, match=r"environment.digits is 0, expected 1 to 64"):
        Environment(digits=0)
