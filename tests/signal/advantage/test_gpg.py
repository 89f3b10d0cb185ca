"""GPG by hand."""

import torch

from rl_sentinel.signal.advantage.gpg import advantages


def test_by_hand() -> None:
    """Two of four live rows carry a signal: the scale is 2."""
    reward, group = torch.tensor([1.0, 3.0, 2.0, 2.0, 9.0]), torch.tensor([0, 0, 1, 1, 1])
    live = torch.tensor([True, True, True, True, False])
    assert advantages(reward, group=group, live=live).tolist() == [-2.0, 2.0, 0.0, 0.0, 0.0]


def test_no_signal() -> None:
    """Where all groups are constant all advantages are exactly 0."""
    live = torch.ones(2, dtype=torch.bool)
    assert advantages(torch.tensor([0.1, 0.1]), group=torch.tensor([0, 0]), live=live).tolist() == [0.0, 0.0]
