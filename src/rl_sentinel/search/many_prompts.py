"""A batch of more prompts than the small and random cases have, in which a grouping by two keys shows."""

from functools import cache

from rl_sentinel.core.case import Case
from rl_sentinel.search.filled_batch import filled

#: Two responses of each of five prompts; those of one prompt are apart.
_GROUP = (0, 1, 2, 3, 4, 0, 1, 2, 3, 4)

_REWARD = (1.0, 1.0, 5.0, 0.0, 2.0, 0.0, 1.0, 3.0, 2.0, 2.5)


@cache
def many_prompts() -> Case:
    """Five prompts of two responses each, with different rewards in four of them.

    Example:
        >>> from rl_sentinel.search.many_prompts import many_prompts
        >>> len(set(many_prompts().batch.group.tolist()))
        5
    """
    return Case(filled([[1, 1]] * len(_GROUP), reward=list(_REWARD), group=list(_GROUP)), "default")
