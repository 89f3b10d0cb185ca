"""REINFORCE by hand, and after a normalization."""

import torch

from rl_sentinel.signal.advantage.reinforce import advantages
from rl_sentinel.signal.choices import Choices
from rl_sentinel.signal.normalization import Normalization
from rl_sentinel.signal.path import loss_ready
from rl_sentinel.signal.rollout import Rollout


def test_by_hand() -> None:
    """The reward itself; a dead row has none, whatever stands there."""
    reward, live = torch.tensor([2.0, -0.5, float("nan")]), torch.tensor([True, True, False])
    assert advantages(reward, live=live).tolist() == [2.0, -0.5, 0.0]


def test_what_was_suppressed_stays_without_a_push() -> None:
    rollout = Rollout(
        reward=torch.tensor([3.0, 1.0, 50.0]),
        group=torch.tensor([7, 7, 7]),
        mask=torch.ones(3, 2, dtype=torch.bool),
        scored=torch.tensor([True, True, False]),
    )
    by = Normalization(mean="group", deviation="none", leave_one_out=False, biased=False, epsilon=0.0)
    ready = loss_ready(rollout, by=Choices(estimator=advantages, normalization=by))
    assert ready.token_advantage()[:, 0].tolist() == [1.0, -1.0, 0.0]
