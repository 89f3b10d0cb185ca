"""Tasks of reasoning-gym, by data set name; their questions are English, so the policy needs ``policy.load``."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import reason_of
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Environment:
    """``task_name`` is a data set of reasoning-gym; the reward is its score, and a score of 1 is correct.

    ``suffix`` is appended to each question. A task's ``answer`` is the seed that generates it.
    """

    task_name: str
    suffix: str = "\n"

    def __post_init__(self) -> None:
        """Check that reasoning-gym has the data set."""
        _generate(self.task_name, 0)

    def task(self, rng: random.Random) -> Task:
        """Generate a question from a random seed."""
        seed = rng.randrange(2**31)
        return Task(_generate(self.task_name, seed)[0]["question"] + self.suffix, str(seed))

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The score that the data set gives to the response; 0 if the response was cut."""
        data = _generate(self.task_name, int(task.answer))
        reward = float(data.score_answer(responses[-1].strip(), data[0])) if ended else 0.0
        return Outcome(reward, reward >= 1.0)


@lru_cache(maxsize=4096)
def _generate(name: str, seed: int) -> Any:  # noqa: ANN401 - a data set of reasoning-gym
    try:
        import reasoning_gym  # noqa: PLC0415 - an extra
    except ImportError as error:
        fix = "pip install 'rl-sentinel[envs]'"
        raise SentinelError(
            f"environment gym needs reasoning-gym, which cannot be imported ({reason_of(error)}): {fix}"
        ) from error
    try:
        return reasoning_gym.create_dataset(name, seed=seed, size=1)
    except ValueError as error:
        raise SentinelError(
            f"environment.task_name {name!r} cannot be made by reasoning-gym ({reason_of(error)}): "
            "name one of its data sets"
        ) from error
