"""Further cases that a law tries before it reports that something has no effect."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.observation import Ask, Observation
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases

#: Seed of the random companions, and how many there are.
SEED, COUNT = 29, 32

#: A function that changes a batch so that it fulfils the conditions of a boundary; None if the boundary has none.
Domain = Callable[[Batch], Batch] | None


def companions(case: Case) -> Iterator[Case]:
    """The case, then some random batches and every small batch, each with the setting and the draw of the case."""
    yield case
    for companion in companion_pool():
        yield replace(case, batch=companion.batch, seed=companion.seed)


@cache
def companion_pool() -> tuple[Case, ...]:
    """The companions of every case; always the same objects, so that results can be cached."""
    return (*random_cases(SEED, COUNT), *small_cases())


def inside_domain(domain: Domain, case: Case) -> Case:
    """The case with a batch that is changed to fulfill the conditions of a boundary."""
    return case if domain is None else replace(case, batch=_domain_batch(domain, case.batch))


@lru_cache(maxsize=4096)
def _domain_batch(domain: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """The batch that the domain makes of a batch; always the same object, so that results can be cached."""
    return domain(batch)


def observation_or_none(ask: Ask, case: Case) -> Observation | None:
    """Call the boundary; None if it refuses the case or does not apply to it."""
    try:
        return ask(case)
    except (NotApplicable, Refused):
        return None
