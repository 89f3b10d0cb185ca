"""Merging, by hand and for random conversations: tokens and rewards are conserved."""

from dataclasses import replace

import pytest

from rl_sentinel.signal.merging import counts, merge
from rl_sentinel.signal.trajectory_step import Step


def _step(prompt: list[int], response: list[int], *, last: bool = False, reward: float = 0.0, who: str = "a") -> Step:
    trained = tuple(t != 0 for t in response)
    paid = (0.0,) * (len(response) - 1) + (reward,)
    sampled = tuple(-float(t) for t in response)
    return Step(who, tuple(prompt), tuple(response), trained, paid, sampled, last=last)


def test_full_merge() -> None:
    steps = [
        _step([1, 2], [3, 4], reward=0.25),
        _step([1, 2, 3, 4, 9, 9], [5, 6], reward=0.5),
        _step([1, 2, 3, 4, 9, 9, 5, 6], [8, 0, 7], reward=1.0, last=True),
    ]
    (found,) = merge(steps)
    assert found.prompt == (1, 2)
    assert found.response == (3, 4, 9, 9, 5, 6, 8, 0, 7)
    assert found.trained == (True, True, False, False, True, True, True, False, True)
    assert found.token_reward == (0.0, 0.25, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0)
    assert found.logprob == (-3.0, -4.0, 0.0, 0.0, -5.0, -6.0, -8.0, 0.0, -7.0)
    assert found.last
    assert counts(steps, [found]) == {"num_seq_before_merge": 3, "num_seq_after_merge": 1}


def test_no_merge_and_partial_merge() -> None:
    apart = [_step([1], [2]), _step([1, 7], [3]), _step([5], [4], last=True)]
    assert merge(apart) == apart
    part = [_step([1], [2]), _step([1, 2, 9], [3]), _step([9], [4]), _step([9, 4], [6], last=True)]
    found = merge(part)
    assert [s.response for s in found] == [(2, 9, 3), (4, 6)]
    assert [s.last for s in found] == [False, True]


def test_trajectories_stay_apart() -> None:
    steps = [_step([1], [2], last=True), _step([1, 2], [3], last=True, who="b")]
    assert merge(steps) == steps


def test_what_would_lose_a_tail_is_refused() -> None:
    with pytest.raises(ValueError, match="trajectory a stops at a step that is not last, expected its steps"):
        merge([_step([1], [2]), _step([1, 2], [3])])
    with pytest.raises(ValueError, match="trajectory a continues after it ended"):
        merge([_step([1], [2], last=True), _step([1, 2], [3], last=True)])
    with pytest.raises(ValueError, match="trajectory a stops at a step that is not last"):
        merge([_step([1], [2]), _step([1], [2], who="b", last=True), _step([1, 2], [3], last=True)])
    with pytest.raises(ValueError, match="logprob of a step of trajectory a has 0 entries, expected 1"):
        replace(_step([1], [2]), logprob=())


def test_nothing_is_merged_to_nothing() -> None:
    assert merge([]) == []
