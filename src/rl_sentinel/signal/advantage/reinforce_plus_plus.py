"""REINFORCE++: discounted rewards to go, normalized over all trained tokens of the batch."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.groups import centered, deviations
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import FRACTION, NON_NEGATIVE, explain_result
from rl_sentinel.signal.scan import discounted_suffix_sums, lined_up, put_back, trained_first
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

#: Claims about this estimator; the deviation is that of the batch's trained tokens.
CLAIMS = {
    "algorithm": "reinforce++",
    "definition:advantage": "whitened (n - 1), beside",
    "scope": "batch",
    "credit": "temporal",
    "untrained": "skipped",
    "standardized": "yes",
    "masked": "yes",
    "masked-slots": "any",
    "knob:discount": "0.5|1.0",
    "knob:epsilon": "1e-06|0.25",
}


@validate(discount=FRACTION, epsilon=NON_NEGATIVE)
def advantages(
    token_reward: Float[Tensor, "*S"], *, mask: Mask, discount: float, epsilon: float
) -> Float[Tensor, "*S"]:
    r"""Standardize the rewards to go over all trained tokens of the batch.

    .. math:: A_t = \frac{G_t - \bar G}{s_G + \epsilon}, \quad G_t = r_t + \gamma G_{t'}

    where :math:`t'` is the next trained token of the response.

    Args:
        token_reward: reward per token, in reward units, with the KL penalty subtracted; ``align.at_last``
            places an outcome at the last token.
        mask: True on trained tokens; other values are ignored.
        discount: factor per trained token on later rewards, from 0 to 1 (gamma).
        epsilon: added to the standard deviation, in reward units.

    Returns:
        Advantage per token, in standard deviations; exactly 0 off the mask, and all 0 where every
        trained token has the same reward to go.

    Raises:
        InputError: if a number on the mask is not finite, a dtype or shape is wrong, ``discount`` is not from 0
            to 1, or ``epsilon`` is negative.

    Source:
        REINFORCE++, arXiv 2501.03262. Untrained tokens neither discount nor count in the mean and deviation.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.reinforce_plus_plus import advantages
        >>> reward, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[True, True], [True, False]])
        >>> advantages(reward, mask=mask, discount=1.0, epsilon=0.0)
        tensor([[ 0.5774,  0.5774],
                [-1.1547,  0.0000]])
    """
    order = trained_first(mask=mask)
    reward = lined_up(selected(token_reward, mask=mask), mask=mask, order=order)
    found = discounted_suffix_sums(reward, discount=discount)
    found = put_back(found, mask=mask, order=order)
    explain_result(found, where=mask, token_reward=token_reward)
    tokens, where = found.flatten(), trained(mask).flatten()
    everyone = torch.zeros_like(where, dtype=torch.long)
    scale = deviations(tokens, group=everyone, live=where) + epsilon
    relative = centered(tokens, group=everyone, live=where) / scale.masked_fill(scale == 0, torch.inf)
    return relative.view(found.shape)
