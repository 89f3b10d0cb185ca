"""Batches in which an estimator gets one row per response."""

import torch

from rl_sentinel.adapters.own_trainer.groups_by_position import has_one_step, one_step
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.codec import Inputs

MASK = torch.ones(3, 2, dtype=torch.bool)


def _of_two_steps() -> Batch:
    """A trajectory of two steps, and one of a single step."""
    steps = torch.tensor([0, 1, 0])
    return batch_of(MASK, trajectory=torch.tensor([0, 0, 1]), last_step=torch.tensor([False, True, True]), step=steps)


def test_each_row_becomes_a_trajectory_of_one_step() -> None:
    alone = one_step(_of_two_steps())
    assert alone.trajectory.tolist() == [0, 1, 2]
    assert alone.last_step.tolist() == [True] * 3
    assert alone.step.tolist() == [0] * 3
    assert one_step(alone) is alone


def test_a_batch_with_several_steps_is_refused() -> None:
    assert has_one_step(Inputs(_of_two_steps())) == "a trajectory has several steps"
    assert has_one_step(Inputs(one_step(_of_two_steps()))) == ""
