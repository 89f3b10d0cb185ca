"""REINFORCE++ with baseline: rewards centered by group, then normalized over the batch."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import centered, deviations
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.validation import validate

#: Claims about this estimator; the deviation is that of the batch.
CLAIMS = {
    "algorithm": "reinforce++ baseline",
    "definition:advantage": "over rows; beside",
    "scope": "batch",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "deviation": "n - 1",
    "standardized": "yes",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
    "knob:epsilon": "1e-06|0.25",
}


@validate(epsilon=NON_NEGATIVE)
def advantages(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"], epsilon: float
) -> Float[Tensor, " B"]:
    r"""Center each reward on the mean of its group's live rewards, then standardize over all live rows.

    .. math:: A_b = \frac{c_b - \bar c}{s_c + \epsilon}, \quad c_b = r_b - \bar r_{g(b)}

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.
        epsilon: added to the standard deviation, in reward units.

    Returns:
        Advantage per response, in standard deviations; exactly 0 where ``live`` is False, and all 0
        where every group is constant.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong; or ``epsilon`` is negative.

    Source:
        REINFORCE++, arXiv 2501.03262. Every live row counts once, whatever its length.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.reinforce_plus_plus_baseline import advantages
        >>> reward, group = torch.tensor([1.0, 0.0, 4.0, 2.0]), torch.tensor([0, 0, 1, 1])
        >>> advantages(reward, group=group, live=torch.ones(4).bool(), epsilon=0.0)
        tensor([ 0.5477, -0.5477,  1.0954, -1.0954])
    """
    everyone = torch.zeros_like(group)
    relative = centered(reward, group=group, live=live)
    scale = deviations(relative, group=everyone, live=live) + epsilon
    return centered(relative, group=everyone, live=live) / scale.masked_fill(scale == 0, torch.inf)
