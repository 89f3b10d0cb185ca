"""GDPO: standardize each part of the reward within its group, then their weighted sum over the batch."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.groups import centered, deviations
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import NON_NEGATIVE, require_finite
from rl_sentinel.signal.validation import validate

#: A deviation of at most this many rounding errors of the parts counts as 0.
_ROUNDING = 4

#: Claims about this estimator; the last step is over the batch.
CLAIMS = {
    "algorithm": "gdpo",
    "definition:advantage": "by rank; (n - 1) over rows; beside",
    "scope": "batch",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
    "knob:epsilon": "1e-06|0.25",
}


@validate(epsilon=NON_NEGATIVE)
def advantages(
    reward_parts: Float[Tensor, "B K"],
    *,
    group: Int[Tensor, " B"],
    live: Bool[Tensor, " B"],
    weight: Float[Tensor, " K"],
    epsilon: float,
) -> Float[Tensor, " B"]:
    r"""Standardize each part within its group, take their weighted sum, and standardize it over all live rows.

    .. math:: A_b = \frac{S_b - \bar S}{s_S + \epsilon}, \quad S_b = \sum_k w_k A^{(k)}_b, \quad
        A^{(k)}_b = \frac{r^{(k)}_b - \bar r^{(k)}_{g(b)}}{s^{(k)}_{g(b)} + \epsilon}

    Args:
        reward_parts: ``K`` rewards per response, each in its reward unit.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.
        weight: the weight of each part in the sum, a ratio.
        epsilon: added to each standard deviation; in reward units for a part, in standard deviations for the sum.

    Returns:
        Advantage per response, in standard deviations; exactly 0 where ``live`` is False, and all 0 if every part is
        constant in every group, or if the parts cancel each other, so that rounding is not amplified.

    Raises:
        InputError: if a dtype or shape is wrong, ``epsilon`` is negative, a part is not finite on a
            live row, ``reward_parts`` has no column, or ``weight`` has not one finite number per part.

    Source:
        GDPO: Group reward-Decoupled Normalization Policy Optimization, arXiv 2601.05242. Only live rows are
        counted; deviations are computed with n - 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.gdpo import advantages
        >>> parts = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 8.0], [0.0, 0.0]])
        >>> group, live = torch.tensor([0, 0, 1, 1]), torch.ones(4).bool()
        >>> advantages(parts, group=group, live=live, weight=torch.ones(2), epsilon=0.0)
        tensor([ 0.5477, -0.5477,  1.0954, -1.0954])
    """
    if reward_parts.shape[1] == 0:
        raise InputError(
            f"reward_parts has shape {list(reward_parts.shape)}, expected [B, K]: a column per reward part, K >= 1"
        )
    require_finite("weight", weight, where=torch.ones_like(weight, dtype=torch.bool), why="it weights a reward part")
    why = "a response with a trained token needs every reward part (mask the response to leave it out)"
    require_finite("reward_parts", reward_parts, where=live.unsqueeze(1).expand_as(reward_parts), why=why)
    everyone = torch.zeros_like(group)
    parts = [
        w * _standardized(part, group, live, epsilon) for w, part in zip(weight, reward_parts.unbind(1), strict=True)
    ]
    stacked = torch.stack(parts)
    whole, size = stacked.sum(dim=0), selected(stacked.abs().sum(dim=0), mask=live)
    far = deviations(whole, group=everyone, live=live) > _ROUNDING * torch.finfo(whole.dtype).eps * size.amax()
    return torch.where(far, _standardized(whole, everyone, live, epsilon), 0.0) if len(whole) else whole


def _standardized(values: Tensor, group: Tensor, live: Tensor, epsilon: float) -> Tensor:
    scale = deviations(values, group=group, live=live) + epsilon
    return centered(values, group=group, live=live) / scale.masked_fill(scale == 0, torch.inf)
