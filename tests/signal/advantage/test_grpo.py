"""GRPO by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.grpo import advantages

GROUP = torch.tensor([0, 1, 0, 1, 0])
LIVE = torch.tensor([True, True, True, True, False])


def test_centered() -> None:
    """Means 2 and 15; the dead row does not count."""
    reward = torch.tensor([1.0, 10.0, 3.0, 20.0, 1e6])
    found = advantages(reward, group=GROUP, live=LIVE, standardize=False, epsilon=1.0)
    assert found.tolist() == [-1.0, -5.0, 1.0, 5.0, 0.0]


def test_standardized() -> None:
    """The deviation of two responses is their distance by the root of 2."""
    reward = torch.tensor([1.0, 10.0, 3.0, 20.0, 1e6])
    found = advantages(reward, group=GROUP, live=LIVE, standardize=True, epsilon=0.0)
    half = 0.5**0.5
    assert found.tolist() == pytest.approx([-half, -half, half, half, 0.0])


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_constant_and_lone(epsilon: float) -> None:
    """Equal rewards, and a lone response, give exactly 0."""
    reward, group = torch.tensor([0.1, 0.1, 0.1, 7.0]), torch.tensor([0, 0, 0, 1])
    found = advantages(reward, group=group, live=torch.ones(4).bool(), standardize=True, epsilon=epsilon)
    assert found.tolist() == [0.0] * 4
