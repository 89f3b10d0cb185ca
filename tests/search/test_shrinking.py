"""The shrinker reaches the smallest case that still shows the fault."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.case import Case
from rl_sentinel.search.random_cases import random_case
from rl_sentinel.search.shrinking import shrunk
from rl_sentinel.search.small_cases import small_cases
from rl_sentinel.search.value_ranges import DOMAINS, outside


def test_reaches_one_cell() -> None:
    """A reward above 1 is all that counts: one row, one position, and nothing else is left."""
    start = next(c for c in map(random_case, range(50)) if (c.batch.reward > 1).any() and c.batch.rows > 4)
    least = shrunk(start, lambda c: bool((c.batch.reward > 1).any()), frozenset({"reward"}))
    assert least.batch.mask.shape == (1, 1)
    assert least.batch.logprob.tolist() == [[0.0]]
    assert bool(least.batch.reward > 1)


NEAR = (
    lambda c: (c.batch.old_logprob != c.batch.logprob)[c.batch.mask],
    lambda c: (c.batch.rollout_logprob < c.batch.old_logprob)[c.batch.mask],
    lambda c: c.batch.ref_logprob.exp() * c.batch.entropy > 0,
    lambda c: c.batch.logprob.exp() + c.batch.pi_squared + c.batch.entropy > 1.5,
)


@pytest.mark.slow
@pytest.mark.parametrize("shows", NEAR)
def test_numbers_stay_in_the_domain_of_their_column(shows: Callable[[Case], Tensor]) -> None:
    """On every case that shows it, the smallest holds no probability above 1 and no entropy below 0."""
    reads = frozenset({"mask", *DOMAINS})
    starts = [c for c in [*small_cases(), *map(random_case, range(30))] if bool(shows(c).any())]
    assert len(starts) > 20
    assert any(outside(c.batch) for c in starts)
    for start in starts:
        least = shrunk(start, lambda c: bool(shows(c).any()), reads).batch
        assert outside(least) == 0
        assert least.rows <= 3
        assert least.width <= 4


def test_never_leaves_what_is_asked() -> None:
    def broken(case: Case) -> bool:
        return case.batch.rows >= 2 and bool(torch.unique(case.batch.group).numel() == 2)

    start = next(c for c in map(random_case, range(50)) if broken(c))
    least = shrunk(start, broken, frozenset({"group"}))
    assert broken(least)
    assert least.batch.rows == 2
    assert least.batch.group.tolist() == [0, 1]


@pytest.mark.slow
def test_rejects_a_row_only_if_that_is_needed() -> None:
    """A fault that every batch of two prompts shows is shown without masks; one of rejected rows keeps one."""

    def two_prompts(case: Case) -> bool:
        return bool(torch.unique(case.batch.group).numel() == 2)

    def one_rejected(case: Case) -> bool:
        return two_prompts(case) and not bool(case.batch.live.all())

    starts = [c for c in [*small_cases(), *map(random_case, range(30))] if one_rejected(c)]
    assert len(starts) > 5
    for start in starts:
        plain = shrunk(start, two_prompts, frozenset({"group", "mask"})).batch
        assert plain.mask.all()
        assert not plain.excluded.any()
        assert shrunk(start, one_rejected, frozenset({"group", "mask"})).batch.live.tolist() == [True, False]
