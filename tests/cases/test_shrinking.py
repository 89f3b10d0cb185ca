"""The shrinker reaches the smallest case that still shows the fault."""

import torch

from rl_sentinel.cases.random import random_case
from rl_sentinel.cases.shrinking import shrunk
from rl_sentinel.core.case import Case


def test_reaches_one_cell() -> None:
    """A reward above 1 is all that counts: one row, one position, and nothing else is left."""
    start = next(c for c in map(random_case, range(50)) if (c.batch.reward > 1).any() and c.batch.rows > 4)
    least = shrunk(start, lambda c: bool((c.batch.reward > 1).any()), frozenset({"reward"}))
    assert least.batch.mask.shape == (1, 1)
    assert least.batch.logprob.tolist() == [[0.0]]
    assert bool(least.batch.reward > 1)


def test_never_leaves_what_is_asked() -> None:
    """Whatever it hands back still shows the fault."""

    def broken(case: Case) -> bool:
        return case.batch.rows >= 2 and bool(torch.unique(case.batch.group).numel() == 2)

    start = next(c for c in map(random_case, range(50)) if broken(c))
    least = shrunk(start, broken, frozenset({"group"}))
    assert broken(least)
    assert least.batch.rows == 2
    assert least.batch.group.tolist() == [0, 1]
