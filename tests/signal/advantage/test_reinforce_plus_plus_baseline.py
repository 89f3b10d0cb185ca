"""REINFORCE++ with baseline by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.reinforce_plus_plus_baseline import advantages


def test_by_hand() -> None:
    """Centered -1, 1, -2, 2; the squares sum to 10 over three."""
    reward, group = torch.tensor([1.0, 3.0, 0.0, 4.0, 99.0]), torch.tensor([0, 0, 1, 1, 1])
    live = torch.tensor([True, True, True, True, False])
    unit = (3 / 10) ** 0.5
    found = advantages(reward, group=group, live=live, epsilon=0.0)
    assert found.tolist() == pytest.approx([-unit, unit, -2 * unit, 2 * unit, 0.0])


def test_constant() -> None:
    """Constant groups of different level give exactly 0, even without an epsilon."""
    reward, group = torch.tensor([0.1, 0.1, 5.0, 5.0]), torch.tensor([0, 0, 1, 1])
    found = advantages(reward, group=group, live=torch.ones(4).bool(), epsilon=0.0)
    assert found.tolist() == [0.0] * 4
