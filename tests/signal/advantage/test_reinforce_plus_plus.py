"""REINFORCE++ by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.reinforce_plus_plus import advantages


def test_by_hand() -> None:
    """Rewards to go 3, 2 (with a gap between) and 1: about 2 by a deviation of 1; garbage off the mask."""
    reward = torch.tensor([[2.0, torch.nan, 2.0], [1.0, torch.inf, torch.nan]])
    mask = torch.tensor([[True, False, True], [True, False, False]])
    found = advantages(reward, mask=mask, discount=0.5, epsilon=0.0)
    assert found.tolist() == [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    assert advantages(reward, mask=mask, discount=0.5, epsilon=1.0)[0, 0].item() == pytest.approx(0.5)


def test_constant() -> None:
    """Equal rewards to go give exactly 0, even without an epsilon."""
    reward, mask = torch.full((3, 1), 0.1), torch.ones(3, 1).bool()
    assert advantages(reward, mask=mask, discount=1.0, epsilon=0.0).tolist() == [[0.0]] * 3


def test_the_discount_lies_between_0_and_1() -> None:
    with pytest.raises(ValueError, match=r"^discount is -0\.5, expected a number of 0 or more and at most 1$"):
        advantages(torch.zeros(1, 1), mask=torch.ones(1, 1).bool(), discount=-0.5, epsilon=0.0)
