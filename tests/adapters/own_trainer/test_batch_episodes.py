"""Rows of a batch become trajectories: one for each trajectory, a step for each row or for each turn."""

from pathlib import Path

import torch

import rl_sentinel
from rl_sentinel.adapters.own_trainer.batch_episodes import episodes_of
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import batch_of

TARGET = Target(root=Path(rl_sentinel.__file__).parents[1])


def test_rows_of_a_trajectory_are_its_steps_in_order() -> None:
    batch = batch_of(
        torch.ones(3, 2, dtype=torch.bool),
        trajectory=torch.tensor([4, 9, 4]),
        step=torch.tensor([1, 0, 0]),
        last_step=torch.tensor([True, True, False]),
        length=torch.tensor([2, 1, 2]),
    )
    episodes, rows = episodes_of(TARGET, batch, frozenset({"trajectory", "last_step"}))
    assert rows == [2, 0, 1]
    assert [[step.last for step in e.steps] for e in episodes] == [[False, True], [True]]
    assert [len(step.response) for e in episodes for step in e.steps] == [2, 2, 1]


def test_turns_of_a_row_are_steps_that_extend_each_other() -> None:
    batch = batch_of(
        torch.tensor([[True, True, False, True, True]]),
        turn=torch.tensor([[0, 0, 1, 1, 1]]),
        length=torch.tensor([4]),
        rollout_logprob=torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0]]),
    )
    ((episode,), _) = episodes_of(TARGET, batch, frozenset({"turn"}), sampled="rollout_logprob")
    first, second = episode.steps
    assert (*first.prompt, *first.response) == second.prompt
    assert (first.trained, second.trained) == ((True, True), (False, True))
    assert (first.logprob, second.logprob) == ((-1.0, -2.0), (-3.0, -4.0))
    assert (first.last, second.last) == (False, True)


def test_outcome_has_the_columns_that_count() -> None:
    batch = batch_of(
        torch.tensor([[True]]),
        reward=torch.tensor([0.5]),
        reward_parts=torch.tensor([[2.0, 3.0]]),
        reward_baseline=torch.tensor([7.0]),
        scored=torch.tensor([False]),
    )
    ((plain,), _) = episodes_of(TARGET, batch, frozenset())
    assert (plain.outcome.reward, plain.outcome.parts, plain.baseline, plain.ended) == (0.5, (), None, True)
    columns = frozenset({"reward_parts", "reward_baseline", "scored"})
    ((whole,), _) = episodes_of(TARGET, batch, columns, parts=3)
    assert (whole.outcome.parts, whole.baseline, whole.ended) == ((2.0, 3.0, 2.0), 7.0, False)
