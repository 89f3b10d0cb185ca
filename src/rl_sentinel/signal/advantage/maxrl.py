"""MaxRL: rewards centered on the mean of their prompt's responses and divided by that mean."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.groups import centered, group_counts, group_sums
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "maxrl",
    "definition:advantage": "by mean and 0",
    "scope": "group",
    "grouping": "id",
    "credit": "outcome",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
}


@validate()
def advantages(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Center each reward on the mean of its group's live rewards and divide by that mean: rare success counts most.

    .. math:: A_b = \frac{r_b - \bar r_{g(b)}}{\bar r_{g(b)}}

    Args:
        reward: task reward per response, at least 0, in reward units; 0 for failure.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.

    Returns:
        Advantage per response, a number of mean rewards; exactly 0 where ``live`` is False, and where
        no live response of the group has a reward above 0.

    Raises:
        InputError: if a dtype or shape is wrong, or ``reward`` is not finite, or below 0, on a live row.

    Source:
        Maximum Likelihood Reinforcement Learning, arXiv 2602.02710. Only live rows are counted, and
        nothing is added to the mean.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.maxrl import advantages
        >>> reward, group = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0])
        >>> advantages(reward, group=group, live=torch.ones(4).bool())
        tensor([ 3., -1., -1., -1.])
    """
    relative = centered(reward, group=group, live=live)
    refuse_where(
        live & (reward < 0),
        lambda at: f"reward{at} is {reward[at[0]].item()}, expected at least 0: its mean estimates a chance of success",
    )
    count = group_counts(group=group, live=live).clamp(min=1)
    mean = group_sums(reward.double(), group=group, live=live) / count  # a sum may overflow the dtype
    return (relative / mean.masked_fill(mean == 0, 1.0)).to(relative.dtype)
