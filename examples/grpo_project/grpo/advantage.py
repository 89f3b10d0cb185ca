"""Group-relative advantages; they have a fault, which the audit of this project finds."""

import torch
from torch import Tensor


def advantages(rewards: Tensor, group: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Rewards ``[B]`` minus their group's mean, divided by a standard deviation."""
    centered = torch.zeros_like(rewards)
    for prompt in group.unique():
        mine = group == prompt
        centered[mine] = rewards[mine] - rewards[mine].mean()
    return centered / (rewards.std(correction=0) + epsilon)
