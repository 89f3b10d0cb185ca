"""Tiny cases: few, small first, and one of each kind that hides a fault."""

import torch

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.stored_columns import check_batch
from rl_sentinel.search.small_cases import small_cases

BATCHES = [case.batch for case in small_cases()]


def test_the_order_is_the_same_for_every_setting_and_seed() -> None:
    again = small_cases("edge", seed=9)
    assert [c.batch for c in again] == BATCHES
    assert {(c.setting, c.seed) for c in again} == {("edge", 9)}
    assert {(c.setting, c.seed) for c in small_cases()} == {("default", 0)}


def test_every_case_is_tiny_and_sound() -> None:
    """A first hit can be read: at most 5 rows of 5 tokens; the first has two of two."""
    for batch in BATCHES:
        check_batch(batch)
        assert batch.rows * batch.width <= 25
    assert BATCHES[0].mask.tolist() == [[True, True]] * 2
    assert BATCHES[0].reward.tolist() == [1.0, 0.0]


def _gap(batch: Batch) -> bool:
    rows = [[n for n, kept in enumerate(row) if kept] for row in batch.mask.tolist()]
    return any(row and row[-1] - row[0] >= len(row) for row in rows)


def test_each_kind_is_met() -> None:
    groups = [batch.group.tolist() for batch in BATCHES]
    signs = [torch.where(b.mask, b.advantage, 0.0) for b in BATCHES]
    kinds = {
        "a dead row beside a live sibling": [not bool(b.live.all()) and bool(b.live.any()) for b in BATCHES],
        "a dead row in one of two groups": [not bool(b.live.all()) and len(set(b.group.tolist())) > 1 for b in BATCHES],
        "nothing trains": [not bool(b.live.any()) for b in BATCHES],
        "one row": [b.rows == 1 for b in BATCHES],
        "one token": [b.mask.numel() == 1 for b in BATCHES],
        "a gap": [_gap(b) for b in BATCHES],
        "an end that does not train": [bool((b.valid & ~b.mask).any()) for b in BATCHES],
        "padding": [bool((b.length < b.width).any()) for b in BATCHES],
        "unequal groups": [len({g.count(i) for i in g}) > 1 for g in groups],
        "interleaved groups": [len(torch.unique_consecutive(torch.tensor(g))) > len(set(g)) for g in groups],
        "equal rewards": [b.rows > 1 and len(set(b.reward.tolist())) == 1 for b in BATCHES],
        "an outcome without an end": [not bool(b.scored.all()) for b in BATCHES],
        "rewards of tokens": [bool(b.token_reward.any()) for b in BATCHES],
        "signs mixed in a row": [bool(((s > 0).any(1) & (s < 0).any(1)).any()) for s in signs],
    }
    assert [name for name, met in kinds.items() if not any(met)] == []


def test_steps_of_trajectories_end_once() -> None:
    several = [b for b in BATCHES if not bool(b.last_step.all())]
    assert len(several) >= 3
    for batch in several:
        for trajectory in torch.unique(batch.trajectory):
            rows = batch.trajectory == trajectory
            assert int(batch.last_step[rows].sum()) == 1
            assert batch.step[rows].tolist() == list(range(int(rows.sum())))
    assert any(not bool(b.live[b.last_step].all()) for b in several)
    assert any(len(set(b.mask.sum(1).tolist())) > 1 for b in several)
