"""MaxRL, by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.maxrl import advantages

LIVE = torch.ones(4).bool()


def test_by_hand() -> None:
    """A success among two failures weighs 2; one among one failure 1; a dead row is nobody's sibling."""
    reward, group = torch.tensor([1.0, 0.0, 0.0, 7.0, 2.0, 0.0]), torch.tensor([5, 5, 5, 5, 1, 1])
    live = torch.tensor([True, True, True, False, True, True])
    torch.testing.assert_close(
        advantages(reward, group=group, live=live), torch.tensor([2.0, -1.0, -1.0, 0.0, 1.0, -1.0])
    )


def test_no_success_and_only_success_are_zero() -> None:
    reward, group = torch.tensor([0.0, 0.0, 0.1, 0.1]), torch.tensor([0, 0, 1, 1])
    assert advantages(reward, group=group, live=LIVE).tolist() == [0.0] * 4


def test_negative_is_refused() -> None:
    """A reward below 0 is no chance; on a dead row nobody asks."""
    reward, group = torch.tensor([1.0, -0.5, 0.0, 0.0]), torch.zeros(4).long()
    with pytest.raises(ValueError, match=r"reward\[1\] is -0.5, expected at least 0"):
        advantages(reward, group=group, live=LIVE)
    live = torch.tensor([True, False, True, True])
    assert advantages(reward, group=group, live=live).tolist() == pytest.approx([2.0, 0.0, -1.0, -1.0])


def test_rewards_whose_sum_does_not_fit_their_type() -> None:
    reward = torch.tensor([1.0, 0.5, 0.5, 1.0]) * 3e38
    found = advantages(reward, group=torch.zeros(4).long(), live=LIVE)
    assert found.tolist() == pytest.approx([1 / 3, -1 / 3, -1 / 3, 1 / 3])
