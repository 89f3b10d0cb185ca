"""RLOO: rewards minus the mean of the prompt's other responses."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import centered, group_counts
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "rloo",
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
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Subtract the mean of the group's other live rewards.

    .. math:: A_b = r_b - \frac{1}{n - 1} \sum_{j \ne b} r_j = \frac{n}{n - 1} (r_b - \bar r_{g(b)})

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, in reward units; exactly 0 where ``live`` is False, and for a lone
        response, which has no baseline.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong.

    Source:
        Back to Basics, arXiv 2402.14740. Only live rows are counted.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.rloo import advantages
        >>> reward, group = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([4, 4, 4])
        >>> advantages(reward, group=group, live=torch.tensor([True, True, True]))
        tensor([ 3.0000, -1.5000, -1.5000])
    """
    count = group_counts(group=group, live=live)
    relative = centered(reward, group=group, live=live)
    return relative * count / (count - 1).clamp(min=1)
