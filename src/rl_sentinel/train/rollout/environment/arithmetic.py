"""Add two numbers: the answer to ``17+25=`` is ``42`` and the end token."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.interfaces import Outcome, Task

#: The mixture of behaviors that the warm start teaches: name and frequency.
BEHAVIORS = {"right": 0.3, "off by one": 0.3, "larger term": 0.2, "rambling": 0.2}


@dataclass(frozen=True, slots=True)
class Environment:
    """Terms from 0 to ``most``; reward 1 for exactly their sum and the end token, else 0.

    Example:
        >>> from rl_sentinel.train.rollout.environment.arithmetic import Environment
        >>> from rl_sentinel.train.rollout.interfaces import Task
        >>> Environment().reply(Task("1+2=", "3"), ["3"], ended=True)
        Outcome(reward=1.0, correct=True, parts=(), failure='')
    """

    most: int = 19

    def __post_init__(self) -> None:
        """Validate the range of the terms."""
        if not 1 <= self.most <= 10**9:
            raise SentinelError(f"environment.most is {self.most}, expected 1 to {10**9}")

    def task(self, rng: random.Random) -> Task:
        """Draw two terms."""
        a, b = (rng.randint(0, self.most) for _ in range(2))
        return Task(f"{a}+{b}=", str(a + b))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The outcome after one turn."""
        right = ended and responses[-1] == task.answer
        return Outcome(float(right), right)

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Draw a demonstration of one behavior: prompt, response, and whether the response ends."""
        task = self.task(rng)
        (behavior,) = rng.choices(list(BEHAVIORS), list(BEHAVIORS.values()))
        if behavior == "rambling":
            return task.prompt, task.answer + "".join(rng.choice("0123456789") for _ in range(8)), False
        larger = max(map(int, task.prompt[:-1].split("+")))
        response = {"right": task.answer, "off by one": str(int(task.answer) + 1), "larger term": str(larger)}
        return task.prompt, response[behavior], True
