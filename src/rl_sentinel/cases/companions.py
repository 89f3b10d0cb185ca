"""Other cases to look at before a law says that something never moves."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from rl_sentinel.cases.random import random_cases
from rl_sentinel.cases.small import small_cases
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.observation import Ask, Observation

#: Seed of the random companions, and how many there are.
SEED, COUNT = 29, 32


def companions(case: Case) -> Iterator[Case]:
    """The case, then every small batch and some random ones under the same setting and draw."""
    yield case
    for batch in _batches():
        yield replace(case, batch=batch)


@cache
def _batches() -> tuple[Batch, ...]:
    return tuple(c.batch for c in (*random_cases(SEED, COUNT), *small_cases()))


def answered(ask: Ask, case: Case) -> Observation | None:
    """What the boundary answers, or None where it refuses the case."""
    try:
        return ask(case)
    except (NotApplicable, Refused):
        return None
