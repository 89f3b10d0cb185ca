"""GAE: temporal differences of a critic's values, discounted over the trained tokens that follow."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels.blocks import by_rows
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import FRACTION
from rl_sentinel.signal.scan import discounted_suffix_sums, lined_up, put_back, trained_first
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "gae",
    "definition:advantage": "as they are",
    "scope": "sequence",
    "credit": "temporal",
    "untrained": "skipped",
    "masked": "yes",
    "masked-slots": "any",
    "knob:discount": "0.5|1.0",
    "knob:decay": "0.0|1.0",
}


@validate(explain="token_reward value", discount=FRACTION, decay=FRACTION)
@by_rows
def advantages(
    token_reward: Float[Tensor, "*S"],
    value: Float[Tensor, "*S"],
    *,
    mask: Mask,
    discount: float,
    decay: float,
) -> Float[Tensor, "*S"]:
    r"""Compute the advantage of each trained token; untrained tokens are skipped.

    .. math:: A_t = \delta_t + \gamma \lambda A_{t'}, \quad \delta_t = r_t + \gamma V_{t'} - V_t

    where :math:`t'` is the next trained token; after the last one :math:`A` and :math:`V` are 0.
    Returns are ``advantages(...) + value`` on trained tokens.

    Args:
        token_reward: reward per token, in reward units; ``align.at_last`` places an outcome at the last token.
        value: the critic's value of each token, in reward units.
        mask: True on trained tokens; other values are ignored.
        discount: factor per trained token on later rewards, from 0 to 1 (gamma).
        decay: factor per trained token on later differences, from 0 to 1 (lambda).

    Returns:
        Advantage per token, in reward units, not whitened; exactly 0 off the mask.

    Raises:
        InputError: if a number on the mask is not finite, a dtype or shape is wrong, or ``discount`` or
            ``decay`` is not from 0 to 1.

    Source:
        High-Dimensional Continuous Control Using Generalized Advantage Estimation, arXiv 1506.02438.
        Tokens that do not train (tool output) are left out, so that their values have no effect.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.gae import advantages
        >>> reward, value = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 99.0, 0.5]])
        >>> advantages(reward, value, mask=torch.tensor([[True, False, True]]), discount=1.0, decay=0.5)
        tensor([[0.2500, 0.0000, 0.5000]])
    """
    order = trained_first(mask=mask)
    baseline, reward = (lined_up(selected(x, mask=mask), mask=mask, order=order) for x in (value, token_reward))
    difference = reward - baseline
    difference[:, :-1].add_(baseline[:, 1:], alpha=discount)
    sums = discounted_suffix_sums(difference, discount=discount * decay)
    return put_back(sums, mask=mask, order=order)
