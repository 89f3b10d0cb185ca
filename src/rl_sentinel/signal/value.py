"""The clipped value loss of a critic."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import POSITIVE_LIMIT
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "clipped value",
    "factor": "half",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:value_clip": "0.1|0.6",
}


@validate(explain="value old_value returns", value_clip=POSITIVE_LIMIT)
def value_loss(  # noqa: PLR0913 - three columns, their mask, the clip and the aggregation
    value: Float[Tensor, "*S"],
    old_value: Float[Tensor, "*S"],
    returns: Float[Tensor, "*S"],
    *,
    mask: Mask,
    value_clip: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Half the larger squared error of the value and of the value clipped around ``old_value``, aggregated.

    .. math:: L_t = \frac12 \max\left((V_t - R_t)^2, (\operatorname{clip}(V_t, V^{old}_t - \epsilon,
        V^{old}_t + \epsilon) - R_t)^2\right)

    Args:
        value: the critic's values, in reward units; the gradient is taken to these.
        old_value: the critic's values before the update, in reward units.
        returns: the targets of the values, in reward units.
        mask: True on trained tokens; other values are ignored.
        value_clip: how far a value may move from the old value, in reward units; infinity for the plain error.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or a number on a trained token is not finite;
            if ``value_clip`` is not above 0.

    Source:
        Implementation Matters in Deep Policy Gradients, arXiv 2005.12729, which found this clip in PPO's code.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> from rl_sentinel.signal.value import value_loss
        >>> one = Aggregation("token-mean", 1.0)
        >>> value, old = torch.tensor([[1.0]]), torch.tensor([[0.0]])
        >>> value_loss(value, old, torch.ones(1, 1), mask=torch.tensor([[True]]), value_clip=0.5, aggregation=one)
        tensor(0.1250)
    """
    plain = selected(value - returns, mask=mask).square()
    near = selected(old_value + (value - old_value).clamp(-value_clip, value_clip) - returns, mask=mask).square()
    return aggregate(torch.maximum(plain, near) / 2, mask=mask, aggregation=aggregation)
