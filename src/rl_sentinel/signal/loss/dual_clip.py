"""Dual-clip PPO: a second bound on the loss of tokens with a negative advantage."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import CEILING, CLIP
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "dual clip",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
    "knob:ceiling": "1.5|5.0",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP, ceiling=CEILING)
@fused(slopes.dual_clip)
def loss(  # noqa: PLR0913 - three columns, their mask, three bounds and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    clip_low: float,
    clip_high: float,
    ceiling: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""PPO's clipped loss, at most ``-ceiling`` times a negative advantage.

    .. math:: L_t = -\max(\min(\rho_t A_t, \operatorname{clip}(\rho_t, 1 - \epsilon_l, 1 + \epsilon_h) A_t), c A_t)
        \quad \text{where } A_t < 0

    Where the advantage is not negative, :math:`L_t` is PPO's loss.

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        clip_low: the ratio is clipped from below at 1 - ``clip_low``.
        clip_high: the ratio is clipped from above at 1 + ``clip_high``.
        ceiling: largest ratio that counts with a negative advantage; above 1, in the paper above ``1 + clip_high``.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000, or ``ceiling`` is not above 1.

    Source:
        Mastering Complex Control in MOBA Games, arXiv 1912.09729.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.dual_clip import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[2.0]]), torch.tensor([[0.0]])
        >>> mask, one = torch.tensor([[True]]), Aggregation("token-mean", 1.0)
        >>> loss(new, old, -torch.ones(1, 1), mask=mask, clip_low=0.2, clip_high=0.2, ceiling=3.0, aggregation=one)
        tensor(3.)
    """
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, clipped = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    least = torch.where(gained < 0, ceiling * gained, -torch.inf)
    gain = torch.where(plain <= clipped, plain, clipped)
    return -aggregate(torch.where(gain < least, least, gain), mask=mask, aggregation=aggregation)
