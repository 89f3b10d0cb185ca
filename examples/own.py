"""Your own environment, estimator and loss: a recipe names this file, nothing is registered.

rl-sentinel train recipes/sort.toml out=runs/own \
    'environment={name="examples/own.py:Digits", most=3}' \
    'estimator={name="examples/own.py:best_of", bonus=0.5}' \
    'loss={name="examples/own.py:plain", aggregation="token-mean"}'
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_sentinel.signal.groups import centered
from rl_sentinel.signal.loss import reinforce
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Digits:
    """Repeat a digit as often as its value: the answer to ``3>`` is ``333``. The recipe sets the fields."""

    most: int = 5

    def task(self, rng: random.Random) -> Task:
        """Draw the prompt, and the answer for ``reply``."""
        digit = rng.randint(1, self.most)
        return Task(f"{digit}>", str(digit) * digit)

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """The outcome: half a point for the right digit, one for the right number. A text would start another turn."""
        right = ended and responses[-1] == task.answer
        close = bool(responses[-1]) and set(responses[-1]) == set(task.answer)
        return Outcome(1.0 if right else 0.5 * close, right)

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """Demonstrate the right digit, any number of times."""
        task = self.task(rng)
        return task.prompt, task.answer[0] * rng.randint(1, self.most), True


def best_of(reward: Tensor, *, group: Tensor, live: Tensor, bonus: float) -> Tensor:
    """Rewards minus the group's mean, plus a bonus for the best of the batch. The recipe sets ``bonus``."""
    best = reward == torch.where(live, reward, -torch.inf).max()
    return centered(reward, group=group, live=live) + torch.where(live & best, bonus, 0.0)


def plain(logprob: Tensor, advantage: Tensor, *, mask: Tensor, aggregation: Aggregation) -> Tensor:
    """REINFORCE. A loss gets the columns that its parameters name, and the aggregation."""
    return reinforce.loss(logprob, advantage, mask=mask, aggregation=aggregation)
