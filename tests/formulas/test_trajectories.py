"""Trajectories of several steps, by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.trajectories import COUNTS_OF_TURNS, OUTCOMES


def test_outcomes_of_trajectories_by_hand() -> None:
    """Outcomes 3 and 1 about 2: the first at both of its steps, nothing at the dead one of the second's; one alone."""
    batch = batch_of(
        torch.tensor([[True], [True], [False], [True], [True]]),
        reward=torch.tensor([9.0, 3.0, 9.0, 1.0, 4.0]),
        group=torch.tensor([0, 0, 0, 0, 1]),
        trajectory=torch.tensor([5, 5, 2, 2, 8]),
        last_step=torch.tensor([False, True, False, True, True]),
    )
    assert OUTCOMES["outcomes of trajectories, centered"](batch, {}).tolist() == [1, 1, 0, -1, 0]


def test_merged_turns_by_hand() -> None:
    """Five turns that forget after every second are three sequences."""
    batch = batch_of(torch.ones(5, 2).bool())
    assert COUNTS_OF_TURNS["sequences after merging"](batch, {"forgets": 2}).item() == 3
    assert COUNTS_OF_TURNS["sequences after merging"](batch, {"forgets": 0}).item() == 1
    assert COUNTS_OF_TURNS["turns"](batch, {}).item() == 5
