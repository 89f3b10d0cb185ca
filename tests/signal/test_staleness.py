"""Versions of the weights that sampled: how old, how mixed, what is too old."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.reduce import live_rows
from rl_sentinel.signal.rollout import Rollout
from rl_sentinel.signal.segments import Segments, narrowed, packed, trained
from rl_sentinel.signal.staleness import fresh_rows, staleness

VERSION = torch.tensor([[7, 7, 8], [5, 9, 9], [9, 9, 9], [1, 1, 1]])
MASK = torch.tensor([[True, True, True], [False, True, True], [True, False, False], [False, False, False]])


def test_by_hand() -> None:
    """Of 10: 3, 3, 2; 1, 1; 1: one row of three is mixed, and what is not trained is not counted, however old."""
    found = staleness(VERSION, mask=MASK, current=10)
    assert [x.item() for x in found] == pytest.approx([11 / 6, 3.0, 1 / 3])
    assert fresh_rows(VERSION, mask=MASK, current=10, most=2).tolist() == [False, True, True, False]
    assert fresh_rows(VERSION, mask=MASK, current=10, most=3).tolist() == [True, True, True, False]


def test_packed_rows_are_the_same() -> None:
    length = torch.tensor([3, 3, 1, 2])
    mask = Segments(packed(MASK, length=length), length)
    version = packed(VERSION, length=length)
    assert staleness(version, mask=mask, current=10) == staleness(VERSION, mask=MASK, current=10)
    assert torch.equal(
        fresh_rows(version, mask=mask, current=10, most=2), fresh_rows(VERSION, mask=MASK, current=10, most=2)
    )


def test_one_version_for_each_row() -> None:
    found = staleness(torch.tensor([3, 1, 0]), mask=torch.tensor([True, True, False]), current=3)
    assert [x.item() for x in found] == [1.0, 2.0, 0.0]


def test_nothing_is_trained() -> None:
    """All 0, and nothing is kept."""
    nothing = torch.zeros_like(MASK)
    assert [x.item() for x in staleness(VERSION, mask=nothing, current=0)] == [0.0, 0.0, 0.0]
    assert not fresh_rows(VERSION, mask=nothing, current=0, most=5).any()


def test_a_version_to_come() -> None:
    told = r"^version\[1, 1\] is 9, expected at most 8, the current one: no token is sampled by later weights$"
    with pytest.raises(InputError, match=told):
        staleness(VERSION, mask=MASK, current=8)
    with pytest.raises(InputError, match=r"^most is -1, expected a number of 0 or more$"):
        fresh_rows(VERSION, mask=MASK, current=10, most=-1)


def test_a_rollout_without_what_is_too_old() -> None:
    rollout = Rollout(reward=torch.zeros(4), group=torch.zeros(4).long(), mask=MASK, version=VERSION)
    assert rollout.version is not None
    fresh = fresh_rows(rollout.version, mask=rollout.mask, current=10, most=2)
    kept = narrowed(rollout.mask, fresh, of_rows=True)
    assert live_rows(kept).tolist() == [False, True, True, False]
    assert trained(kept)[1].tolist() == [False, True, True]
