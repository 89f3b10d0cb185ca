"""The arithmetic environment."""

import random
from collections import Counter

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.environment.arithmetic import BEHAVIORS, Environment
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@pytest.mark.parametrize(("response", "ended", "reward"), [("42", True, 1.0), ("42", False, 0.0), ("420", True, 0.0)])
def test_exact_sum_is_rewarded(response: str, ended: bool, reward: float) -> None:
    assert Environment().reply(Task("17+25=", "42"), [response], ended=ended) == Outcome(reward, bool(reward))


def test_task_has_its_sum() -> None:
    for n in range(50):
        task = Environment(most=30).task(random.Random(n))
        terms = [int(t) for t in task.prompt[:-1].split("+")]
        assert sum(terms) == int(task.answer)
        assert max(terms) <= 30


def test_warm_start_has_the_mixture() -> None:
    """Each behavior at its frequency; the larger term of n + 0 is right as well."""
    rng, counts = random.Random(0), Counter[str]()
    for _ in range(1000):
        prompt, response, ends = Environment(most=99).warm(rng)
        one, two = map(int, prompt[:-1].split("+"))
        kinds = {"right": one + two, "off by one": one + two + 1, "larger term": max(one, two)}
        counts["rambling" if not ends else next(k for k, v in kinds.items() if str(v) == response)] += 1
    for kind, share in BEHAVIORS.items():
        assert abs(counts[kind] - 1000 * share) < 75


def test_bound_is_validated() -> None:
    with pytest.raises(SentinelError, match=r"environment.most is 0, expected 1 to"):
        Environment(most=0)
