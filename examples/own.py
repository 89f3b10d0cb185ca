"""An environment, an estimator and a loss of one's own, named in a recipe by this file; nothing is registered.

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

from rl_sentinel.signal.groups import centred
from rl_sentinel.signal.loss import reinforce
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.train.rollout.interfaces import Outcome, Task


@dataclass(frozen=True, slots=True)
class Digits:
    """Say a digit as often as it says: ``3>`` is answered by ``333``. Its fields are the recipe's numbers."""

    most: int = 5

    def task(self, rng: random.Random) -> Task:
        """What the policy reads, and what judges its answer."""
        digit = rng.randint(1, self.most)
        return Task(f"{digit}>", str(digit) * digit)

    def reply(self, task: Task, responses: Sequence[str], *, ended: bool) -> str | Outcome:
        """Text for another turn, or the outcome: half a point for the right digit, all for the right number."""
        right = ended and responses[-1] == task.answer
        close = bool(responses[-1]) and set(responses[-1]) == set(task.answer)
        return Outcome(1.0 if right else 0.5 * close, right)

    def warm(self, rng: random.Random) -> tuple[str, str, bool]:
        """What is shown before: the right digit, any number of times."""
        task = self.task(rng)
        return task.prompt, task.answer[0] * rng.randint(1, self.most), True


def best_of(reward: Tensor, *, group: Tensor, live: Tensor, bonus: float) -> Tensor:
    """Rewards less their group's mean, a bonus for the batch's best: columns by name, numbers from the recipe."""
    best = reward == torch.where(live, reward, -torch.inf).max()
    return centred(reward, group=group, live=live) + torch.where(live & best, bonus, 0.0)


def plain(logprob: Tensor, advantage: Tensor, *, mask: Tensor, aggregation: Aggregation) -> Tensor:
    """A loss takes the columns that it names, and divides by what the aggregation says."""
    return reinforce.loss(logprob, advantage, mask=mask, aggregation=aggregation)
