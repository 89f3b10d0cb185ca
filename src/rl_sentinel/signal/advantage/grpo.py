"""GRPO: rewards centered on the mean of their prompt's responses, and divided by their standard deviation."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import centered, moments
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "grpo",
    "scope": "group",
    "grouping": "id",
    "credit": "outcome",
    "baseline": "relative",
    "deviation": "n - 1",
    "knob:standardize": "true|false",
    "lone": "zero",
    "masked": "yes",
    "masked-slots": "any",
    "knob:epsilon": "1e-06|0.25",
}


@validate(epsilon=NON_NEGATIVE)
def advantages(
    reward: Float[Tensor, " B"],
    *,
    group: Int[Tensor, " B"],
    live: Bool[Tensor, " B"],
    standardize: bool,
    epsilon: float,
) -> Float[Tensor, " B"]:
    r"""Center each reward on the mean of its group's live rewards; ``standardize`` divides by their deviation.

    .. math:: A_b = \frac{r_b - \bar r_{g(b)}}{s_{g(b)} + \epsilon}

    Args:
        reward: task reward per response, in reward units.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.
        standardize: True to divide by the standard deviation (n - 1) of the group; False to center only.
        epsilon: added to the standard deviation, in reward units; without effect if not ``standardize``.

    Returns:
        Advantage per response, in standard deviations or in reward units; exactly 0 where ``live``
        is False, and for a lone response.

    Raises:
        InputError: if ``reward`` is not finite on a live row, or a dtype or shape is wrong; or ``epsilon`` is negative.

    Source:
        DeepSeekMath, arXiv 2402.03300. Only live rows are counted, and a constant group gives
        exactly 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.grpo import advantages
        >>> reward, group = torch.tensor([1.0, 0.0, 9.0]), torch.tensor([0, 0, 0])
        >>> live = torch.tensor([True, True, False])
        >>> advantages(reward, group=group, live=live, standardize=False, epsilon=0.0)
        tensor([ 0.5000, -0.5000,  0.0000])
    """
    if not standardize:
        return centered(reward, group=group, live=live)
    relative, spread = moments(reward, group=group, live=live)
    scale = spread + epsilon
    return relative / scale.masked_fill(scale == 0, torch.inf)
