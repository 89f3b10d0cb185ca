"""OPO by hand."""

import torch

from rl_sentinel.signal.advantage.opo import advantages


def test_by_hand() -> None:
    """Lengths 3 and 1 put the baseline at a quarter of the way; the dead row does not count."""
    reward, group = torch.tensor([0.0, 4.0, 100.0]), torch.tensor([1, 1, 1])
    live, length = torch.tensor([True, True, False]), torch.tensor([3, 1, 9])
    assert advantages(reward, group=group, live=live, length=length).tolist() == [-1.0, 3.0, 0.0]


def test_whole_group_dead() -> None:
    reward, group = torch.tensor([0.0, 4.0]), torch.tensor([1, 1])
    nobody = torch.zeros(2, dtype=torch.bool)
    assert advantages(reward, group=group, live=nobody, length=torch.tensor([3, 1])).tolist() == [0.0, 0.0]
