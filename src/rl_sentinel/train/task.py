"""What an environment is: it sets tasks, and answers what the policy says."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Task:
    """One task: what the policy reads first, and what the environment needs to judge its answers."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trajectory: its reward, in reward units, and whether it was right.

    ``parts`` are numbers that an estimator may weigh itself in the place of the reward, one for each of
    ``Environment.parts``, each in a reward unit of its own.
    """

    reward: float
    correct: bool
    parts: tuple[float, ...] = ()


class Environment(Protocol):
    """Two functions without memory, so that a run that was killed can ask them again.

    ``warm`` draws a prompt and a response for supervised learning before the reinforcement; an environment that is
    never warm-started need not have it.
    """

    def task(self, chance: random.Random) -> Task:
        """Draw a task."""

    def reply(self, task: Task, said: Sequence[str], *, ended: bool) -> str | Outcome:
        """Answer what the policy said: with text for its next turn, or with the outcome.

        Args:
            task: the task.
            said: all that the policy said so far, a text per turn.
            ended: False where the last of these was cut at the most tokens.
        """


class Warmed(Environment, Protocol):
    """An environment that shows how a policy may behave before it learns by reward."""

    def warm(self, chance: random.Random) -> tuple[str, str, bool]:
        """A prompt, a response to learn, and whether the response ends."""


class Parted(Environment, Protocol):
    """An environment whose reward has parts; each ``Outcome`` has a number for each."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What they are called, in their order."""
