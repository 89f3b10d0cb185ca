"""Batches with more prompts, or more responses of one prompt, than the small and random cases have."""

from functools import cache

import torch

from rl_sentinel.core.case import Case
from rl_sentinel.search.filled_batch import filled

#: Two responses of each of five prompts; the responses of one prompt are not adjacent.
_GROUP = (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)

_REWARD = (1.0, 1.0, 5.0, 0.0, 2.0, 0.0, 1.0, 3.0, 2.0, 2.5)


#: Number of responses of the prompt with one success, whose normalized advantage is the square root of 11.
_RESPONSES = 12


@cache
def one_success() -> Case:
    """One prompt with twelve responses, of which one has a reward, so that a limit on advantages shows.

    An estimator gives this response an advantage of up to 3.3. For a loss, the advantage is 8, as for one
    success among 64.

    Example:
        >>> from rl_sentinel.search.many_prompts import one_success
        >>> one_success().batch.reward.sum().item()
        1.0
    """
    rewards = [1.0, *[0.0] * (_RESPONSES - 1)]
    advantage = torch.tensor([[8.0 if reward else -0.125] for reward in rewards], device="cpu")
    return Case(filled([[1]] * _RESPONSES, reward=rewards, group=[0] * _RESPONSES, advantage=advantage), "default")


@cache
def many_prompts() -> Case:
    """Five prompts of two responses each, with different rewards in four of them.

    Example:
        >>> from rl_sentinel.search.many_prompts import many_prompts
        >>> len(set(many_prompts().batch.group.tolist()))
        5
    """
    return Case(filled([[1, 1]] * len(_GROUP), reward=list(_REWARD), group=list(_GROUP)), "default")
