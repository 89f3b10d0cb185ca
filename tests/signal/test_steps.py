"""Step-wise trajectories, by hand."""

from functools import partial

import pytest
import torch

from rl_sentinel.signal.advantage import grpo
from rl_sentinel.signal.align import spread
from rl_sentinel.signal.steps import last_steps, over_trajectories, trajectories

CENTERED = partial(grpo.advantages, standardize=False, epsilon=0.0)
#: Trajectories A of three steps (reward 1) and B of two (reward 0), rows mixed.
TRAJECTORY = torch.tensor([10, 3, 10, 3, 10])
LAST = torch.tensor([False, False, False, True, True])
REWARD = torch.tensor([9.0, 9.0, 9.0, 0.0, 1.0])
GROUP, LIVE = torch.zeros(5).long(), torch.ones(5).bool()


def test_each_step_has_its_trajectory_s_advantage_on_its_own_tokens() -> None:
    """No trained token is left at 0, wherever it stands, and rewards of earlier steps do not count."""
    found = over_trajectories(CENTERED, REWARD, group=GROUP, live=LIVE, trajectory=TRAJECTORY, last=LAST)
    assert found.tolist() == [0.5, -0.5, 0.5, -0.5, 0.5]
    mask = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 1]]).bool()
    tokens = spread(found, mask=mask)
    assert bool((tokens[mask] != 0).all())
    assert bool((tokens[~mask] == 0).all())


def test_more_steps_weigh_no_more() -> None:
    """The mean is over trajectories: with steps counted it would be 0.6."""
    found = over_trajectories(CENTERED, REWARD, group=GROUP, live=LIVE, trajectory=TRAJECTORY, last=LAST)
    assert found[0].item() == 0.5


def test_dead_steps() -> None:
    """A trajectory lives by any of its steps; one without any is no sibling; a dead step gets 0."""
    live = torch.tensor([True, False, True, False, False])
    found = over_trajectories(CENTERED, REWARD, group=GROUP, live=live, trajectory=TRAJECTORY, last=LAST)
    assert found.tolist() == [0.0] * 5
    two = torch.tensor([True, True, True, False, False])
    found = over_trajectories(CENTERED, REWARD, group=GROUP, live=two, trajectory=TRAJECTORY, last=LAST)
    assert found.tolist() == [0.5, -0.5, 0.5, 0.0, 0.0]


def test_trajectories_of_rows_in_any_order() -> None:
    live = torch.tensor([False, False, True, False, False])
    found = trajectories(group=GROUP, live=live, trajectory=TRAJECTORY, last=LAST)
    assert (found.last.tolist(), found.live.tolist()) == ([3, 4], [False, True])  # 3, then 10
    assert found.place.tolist() == [1, 0, 1, 0, 1]
    assert found.repeated(torch.tensor([7.0, 8.0]), live=live).tolist() == [0.0, 0.0, 8.0, 0.0, 0.0]


def test_flags_that_lose_something_are_refused() -> None:
    with pytest.raises(ValueError, match="trajectory 10 has 0 last steps, expected 1: set last to True"):
        last_steps(trajectory=TRAJECTORY, last=torch.tensor([False, False, False, True, False]))
    with pytest.raises(ValueError, match="trajectory 3 has 2 last steps"):
        last_steps(trajectory=TRAJECTORY, last=torch.tensor([False, True, False, True, True]))
    group = torch.tensor([0, 0, 4, 0, 0])
    with pytest.raises(ValueError, match=r"group\[2\] is 4, expected 0, that of the last step of trajectory 10"):
        over_trajectories(CENTERED, REWARD, group=group, live=LIVE, trajectory=TRAJECTORY, last=LAST)
