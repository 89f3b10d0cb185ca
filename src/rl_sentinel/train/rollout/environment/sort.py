"""Sort digits: the answer to ``52314>`` is ``12345`` and the end token."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.rollout.interfaces import Outcome, Task

#: The mixture of behaviors that the warm start teaches: name and frequency.
BEHAVIORS = {"right": 0.3, "reversed": 0.3, "copied": 0.2, "rambling": 0.2}


@dataclass(frozen=True, slots=True)
class Environment:
    """Reward 1 for exactly the sorted digits and the end token; its parts are the digits and their order.

    ``rambling`` is the reward per character of a response without an end; a value above 0 simulates a faulty verifier.

    Example:
        >>> from rl_sentinel.train.rollout.environment.sort import Environment
        >>> from rl_sentinel.train.rollout.interfaces import Task
        >>> Environment(digits=3).reply(Task("312>", "123"), ["123"], ended=True)
        Outcome(reward=1.0, correct=True, parts=(1.0, 1.0), failure='')
    """

    digits: int = 5
    rambling: float = 0.0
    parts: ClassVar[tuple[str, ...]] = ("digits", "order")

    def __post_init__(self) -> None:
        """Validate the number of digits."""
        if not 1 <= self.digits <= 64:
            raise SentinelError(f"environment.digits is {self.digits}, expected 1 to 64")

    def task(self, rng: random.Random) -> Task:
        """Draw the digits."""
        digits = "".join(rng.choice("0123456789") for _ in range(self.digits))
        return Task(f"{digits}>", "".join(sorted(digits)))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The outcome after one turn."""
        answer = "".join(sorted(responses[-1]))
        digits, order = ended and answer == task.answer, ended and responses[-1] == answer
        right = digits and order
        reward = float(right) if ended else self.rambling * len(responses[-1])
        return Outcome(reward, right, parts=(float(digits), float(order)))

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Draw a demonstration of one behavior: prompt, response, and whether the response ends."""
        task = self.task(rng)
        (behavior,) = rng.choices(list(BEHAVIORS), list(BEHAVIORS.values()))
        if behavior == "rambling":
            return task.prompt, task.answer + "".join(rng.choice("0123456789") for _ in range(8)), False
        response = {"right": task.answer, "reversed": task.answer[::-1], "copied": task.prompt[:-1]}
        return task.prompt, response[behavior], True
