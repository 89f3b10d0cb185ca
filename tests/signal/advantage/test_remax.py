"""ReMax by hand."""

import pytest
import torch

from rl_sentinel.signal.advantage.remax import advantages


def test_by_hand() -> None:
    """The greedy reward is subtracted; a dead row has 0, whatever stands there."""
    reward, greedy = torch.tensor([1.0, 0.25, torch.nan]), torch.tensor([0.5, 1.0, 0.0])
    found = advantages(reward, greedy, live=torch.tensor([True, True, False]))
    assert found.tolist() == [0.5, -0.75, 0.0]


def test_what_is_not_finite_is_refused() -> None:
    """On a live row, by its number."""
    zeros = torch.zeros(2)
    with pytest.raises(ValueError, match=r"^reward\[1\] is inf, expected a finite number"):
        advantages(torch.tensor([0.0, torch.inf]), zeros, live=torch.ones(2).bool())
