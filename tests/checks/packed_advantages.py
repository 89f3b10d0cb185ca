"""GRPO's advantages of packed tokens, one function sound and one with a fault, as users write them."""

import torch
from torch import Tensor


def by_prompt(rewards: Tensor, group: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Centred and divided by the deviation of the prompt."""
    by_row = torch.zeros_like(rewards)
    for prompt in set(group.tolist()):
        own = group == prompt
        spread = rewards[own].std() if own.sum() > 1 else rewards.new_zeros(())
        by_row[own] = (rewards[own] - rewards[own].mean()) / (spread + 1e-6)
    return by_row.repeat_interleave(cu_seqlens.diff())


def by_batch(rewards: Tensor, group: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Centred and divided by the deviation of the whole batch."""
    by_row = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return by_row.repeat_interleave(cu_seqlens.diff())
