"""OPO: rewards minus the length-weighted mean of their prompt's responses."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.groups import centered
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "opo",
    "definition:advantage": "by tokens of the response",
    "scope": "group",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "standardized": "no",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
}


@validate()
def advantages(
    reward: Float[Tensor, " B"],
    *,
    group: Int[Tensor, " B"],
    live: Bool[Tensor, " B"],
    length: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    r"""Subtract the mean of the group's live rewards, each weighted by its response's length.

    .. math:: A_b = r_b - \frac{\sum_{j \in g(b)} l_j r_j}{\sum_{j \in g(b)} l_j}

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.
        length: tokens of the response, in tokens; positive on live rows.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong; or a
            length is negative, or 0 on a live row.

    Source:
        On-Policy RL with Optimal Reward Baseline, arXiv 2505.23585. Only live rows are counted.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.opo import advantages
        >>> reward, group, live = torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([True, True])
        >>> advantages(reward, group=group, live=live, length=torch.tensor([3, 1]))
        tensor([ 0.2500, -0.7500])
    """
    length = length.long()
    refuse_where(
        length < live.long(),
        lambda at: f"length{at} is {int(length[at[0]])}, expected 1 token or more on a live row, 0 or more on others",
    )
    return centered(reward, group=group, live=live, weight=length.to(torch.promote_types(reward.dtype, torch.float32)))
