"""Pass@k: the best response of a prompt gets its margin over the second best, all others 0."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import group_counts, group_maxima
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "pass@k",
    "scope": "group",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "order-statistic": "yes",
    "standardized": "no",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
}


@validate(finite="reward")
def advantages(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Give the best live response its margin over the group's second best, and all others 0.

    .. math:: A_b = r_b - \max_{j \ne b} r_j \text{ if } r_b \text{ is the largest, else } 0

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False, where several
        responses share the best reward, and for a lone response.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong.

    Source:
        Optimizing Language Models for Inference Time Objectives using Reinforcement Learning, arXiv 2503.19595: the
        largest reward of the group minus the largest reward without this response; k is the number of responses in the
        group. Rows without a trained token are left out.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.passk import advantages
        >>> reward, group = torch.tensor([5.0, 2.0, 1.0]), torch.tensor([0, 0, 0])
        >>> advantages(reward, group=group, live=torch.tensor([True, True, True]))
        tensor([3., 0., 0.])
    """
    wide = reward.to(torch.promote_types(reward.dtype, torch.float32))
    best = live & (wide == group_maxima(wide, group=group, live=live))
    single = best & (group_counts(group=group, live=best) == 1) & (group_counts(group=group, live=live) > 1)
    second = group_maxima(wide, group=group, live=live & ~best)
    return torch.where(single, wide - second, torch.zeros_like(wide))
