"""GRPO's advantages of packed tokens, one function sound and one with a fault, as users write them."""

from itertools import pairwise

import torch
from torch import Tensor


def by_prompt(rewards: Tensor, group: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Centered and divided by the deviation of the prompt."""
    by_row = torch.zeros_like(rewards)
    for prompt in set(group.tolist()):
        own = group == prompt
        spread = rewards[own].std() if own.sum() > 1 else rewards.new_zeros(())
        by_row[own] = (rewards[own] - rewards[own].mean()) / (spread + 1e-6)
    return by_row.repeat_interleave(cu_seqlens.diff())


def by_batch(rewards: Tensor, group: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Centered and divided by the deviation of the whole batch."""
    by_row = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    return by_row.repeat_interleave(cu_seqlens.diff())


def _gae(rewards: Tensor, values: Tensor, starts: list[int], gamma: float, lam: float) -> Tensor:
    """The estimate for rows that begin at these places; the last one is the end."""
    out = torch.zeros_like(values)
    for start, end in pairwise(starts):
        running = following = values.new_zeros(())
        for place in range(end - 1, start - 1, -1):
            delta = rewards[place] + gamma * following - values[place]
            running = delta + gamma * lam * running
            out[place], following = running, values[place]
    return out


def gae(token_rewards: Tensor, values: Tensor, cu_seqlens: Tensor, gamma: float = 0.99, lam: float = 0.95) -> Tensor:
    """The generalized estimate."""
    return _gae(token_rewards, values, cu_seqlens.tolist(), gamma, lam)


def gae_documented(
    token_rewards: Tensor, values: Tensor, cu_seqlens: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """The generalized estimate.

    token_rewards, values: all tokens, shape (N,).
    """
    return _gae(token_rewards, values, cu_seqlens.tolist(), gamma, lam)


def gae_of_rewards(
    rewards: Tensor, values: Tensor, cu_seqlens: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """The same, of rewards whose name does not say that they are those of tokens."""
    return _gae(rewards, values, cu_seqlens.tolist(), gamma, lam)


def gae_of_lengths(
    token_rewards: Tensor, values: Tensor, lengths: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """The same, of the lengths of the rows."""
    return _gae(token_rewards, values, [0, *lengths.cumsum(0).tolist()], gamma, lam)


def gae_over_ends(
    token_rewards: Tensor, values: Tensor, cu_seqlens: Tensor, gamma: float = 0.99, lam: float = 0.95
) -> Tensor:
    """A fault: what is bootstrapped and accumulated goes on over the end of a row."""
    ends = cu_seqlens.tolist()
    return _gae(token_rewards, values, [0, ends[-1]], gamma, lam)


def to_go(token_rewards: Tensor, cu_seqlens: Tensor, gamma: float = 0.99) -> Tensor:
    """The discounted rewards from each token on."""
    zeros = torch.zeros_like(token_rewards)
    return _gae(token_rewards, zeros, cu_seqlens.tolist(), gamma, 1.0)


def to_go_over_ends(token_rewards: Tensor, cu_seqlens: Tensor, gamma: float = 0.99) -> Tensor:
    """A fault: those of the next rows count too."""
    zeros = torch.zeros_like(token_rewards)
    return _gae(token_rewards, zeros, [0, int(cu_seqlens[-1])], gamma, 1.0)
