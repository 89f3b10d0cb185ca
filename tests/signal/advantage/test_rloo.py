"""RLOO by hand."""

import torch

from rl_sentinel.signal.advantage.rloo import advantages


def test_by_hand() -> None:
    """Each against the mean of the others; a dead row is no other; a lone one has none."""
    reward, group = torch.tensor([1.0, 2.0, 6.0, 50.0, 4.0]), torch.tensor([5, 5, 5, 5, 8])
    live = torch.tensor([True, True, True, False, True])
    assert advantages(reward, group=group, live=live).tolist() == [-3.0, -1.5, 4.5, 0.0, 0.0]
