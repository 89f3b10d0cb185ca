"""Pass@k by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.passk import advantages


def test_by_hand() -> None:
    """Only the best live response of a group counts; a shared or lone best does not."""
    reward = torch.tensor([5.0, 2.0, 9.0, 3.0, 3.0, 1.0, 7.0])
    group = torch.tensor([0, 0, 0, 1, 1, 1, 2])
    live = torch.tensor([True, True, False, True, True, True, True])
    assert advantages(reward, group=group, live=live).tolist() == [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_missing_reward_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reward\[0\] is nan"):
        advantages(torch.tensor([torch.nan]), group=torch.tensor([0]), live=torch.tensor([True]))
