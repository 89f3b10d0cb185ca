"""Facts about a batch, each on one that has it and one that has not."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import Refused
from rl_sentinel.search import preconditions
from rl_sentinel.search.filled_batch import filled
from specimens import specimen

PAIR = filled([[1, 1], [1, 0]], reward=[1, 0], group=[0, 0], length=[2, 1])
MIXED = filled([[0, 1], [1, 0], [0, 0]], reward=[1, 1, 0], group=[3, 5, 3])

_STEPS = {"trajectories": "step-wise"}


def test_rows_without_a_say() -> None:
    batch = with_columns(MIXED, trajectory=torch.tensor([0, 1, 0]))
    plain, steps = (specimen(lambda b: b.reward, reads="reward mask", claims=c) for c in ({}, _STEPS))
    assert preconditions.without_influence(plain, batch, batch.live).tolist() == [False, False, True]
    assert preconditions.without_influence(steps, batch, batch.live).tolist() == [False, False, False]
    alone = with_columns(batch, trajectory=torch.arange(3))
    assert preconditions.without_influence(steps, alone, alone.live).tolist() == [False, False, True]


def test_groups() -> None:
    assert preconditions.distinct(MIXED.group) == [3, 5]
    assert not preconditions.contiguous(MIXED.group)
    assert preconditions.contiguous(PAIR.group)
    assert preconditions.live_in_group(MIXED).tolist() == [1, 1, 1]
    assert preconditions.rewards_differ(MIXED).tolist() == [True, False, True]


def test_groups_are_seen_as_the_boundary_groups() -> None:
    for reads, claims, seen in (
        ("reward group", {}, False),
        ("reward group", {"grouping": "id"}, True),
        ("reward", {}, True),
    ):
        boundary = specimen(lambda b: b.advantage, reads=reads, claims=claims)
        assert preconditions.groups_recognizable(boundary, MIXED) is seen


def test_trained_positions() -> None:
    assert preconditions.first_trained(MIXED).tolist() == [1, 0, 0]
    assert preconditions.last_trained(MIXED).tolist() == [1, 0, 0]


def test_outcomes_compare() -> None:
    assert preconditions.outcomes_compare(PAIR)
    assert not preconditions.outcomes_compare(MIXED)
    assert not preconditions.outcomes_compare(with_columns(PAIR, scored=torch.tensor([True, False])))
    assert not preconditions.outcomes_compare(with_columns(PAIR, trajectory=torch.tensor([0, 0])))
    assert not preconditions.outcomes_compare(with_columns(PAIR, length=torch.tensor([2, 2])))
    assert not preconditions.outcomes_compare(with_columns(PAIR, group=torch.tensor([0, 1])))


def test_level_of_dead_row() -> None:
    """A row that was sampled and thrown away may be argued about, padding may not."""
    case = Case(MIXED, draw={"row": 2})
    assert preconditions.level_of_dead_row(case) == "contested"
    padding = with_columns(MIXED, excluded=torch.tensor([0, 0, 1]))
    assert preconditions.level_of_dead_row(replace(case, batch=padding)) == "fault"


def test_last_steps() -> None:
    trajectory, last = torch.tensor([7, 4, 7]), torch.tensor([False, True, True])
    batch = filled([[1], [1], [1]], reward=[1, 2, 3], group=[0, 0, 0], trajectory=trajectory, last_step=last)
    plain = specimen(lambda b: b.mask, reads="reward mask")
    whole, own = preconditions.last_steps(plain, batch)
    assert (whole.rows, own.tolist()) == (3, [0, 1, 2])
    stepped = specimen(lambda b: b.mask, reads="reward mask", claims={"trajectories": "step-wise"})
    finals, own = preconditions.last_steps(stepped, batch)
    assert (finals.reward.tolist(), own.tolist()) == ([2, 3], [1, 0, 1])
    with pytest.raises(Refused, match="one last step"):
        preconditions.last_steps(stepped, with_columns(batch, last_step=torch.tensor([True, True, True])))
