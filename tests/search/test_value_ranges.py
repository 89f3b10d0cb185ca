"""Which numbers a column can hold, and how a batch is brought there."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.search.value_ranges import DOMAINS, brought_inside, inside, outside


def test_domains_of_what_a_policy_gives() -> None:
    assert set(DOMAINS) == {"logprob", "old_logprob", "ref_logprob", "rollout_logprob", "entropy", "pi_squared"}
    assert [inside("pi_squared", x) for x in (-0.5, 0.0, 1.0, 1.5)] == [False, True, True, False]
    assert [inside("entropy", x) for x in (-0.5, 0.0, 9.0)] == [False, True, True]
    assert [inside("old_logprob", x) for x in (-9.0, 0.0, 0.5)] == [True, True, False]
    assert inside("reward", 1e9)


def test_cells_that_are_outside_are_counted() -> None:
    """One above and one below; no number is no cell outside, since it compares with nothing."""
    mask = torch.ones(1, 2, dtype=torch.bool)
    batch = batch_of(mask, logprob=torch.tensor([[0.5, -1.0]]), entropy=torch.tensor([[-1.0, 1.0]]))
    assert outside(batch) == 2
    assert outside(batch_of(mask)) == 0


def test_brought_inside_by_the_nearest_number_then_by_one_step_for_all() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    old, new = torch.tensor([[1.5, -1.0]]), torch.tensor([[-0.5, 0.25]])
    near, lowered = brought_inside(batch_of(mask, old_logprob=old, logprob=new, entropy=-mask.float()))
    assert near.old_logprob.tolist() == [[0.0, -1.0]]
    assert near.logprob.tolist() == [[-0.5, 0.0]]
    assert near.entropy.tolist() == lowered.entropy.tolist() == [[0.0, 0.0]]
    assert torch.equal(lowered.old_logprob - lowered.logprob, old - new)
    assert [outside(b) for b in (near, lowered)] == [0, 0]


def test_a_batch_that_is_inside_is_left() -> None:
    assert list(brought_inside(batch_of(torch.ones(2, 2, dtype=torch.bool)))) == []
