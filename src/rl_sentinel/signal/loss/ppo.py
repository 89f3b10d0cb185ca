"""PPO's clipped loss."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import CLIP
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "ppo",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
@fused(slopes.ppo)
def loss(  # noqa: PLR0913 - three columns, their mask, the two clips and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    clip_low: float,
    clip_high: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus the smaller of ratio times advantage and its clipped form, aggregated.

    .. math:: L_t = -\min(\rho_t A_t, \operatorname{clip}(\rho_t, 1 - \epsilon_l, 1 + \epsilon_h) A_t),
        \quad \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        clip_low: the ratio is clipped from below at 1 - ``clip_low``.
        clip_high: the ratio is clipped from above at 1 + ``clip_high``.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000.

    Source:
        Proximal Policy Optimization, arXiv 1707.06347, with one clip range below 1 and another above 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.ppo import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[0.0, -9.0]]), torch.tensor([[-1.0, 0.0]])
        >>> mask, one = torch.tensor([[True, False]]), Aggregation("token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=mask, clip_low=0.2, clip_high=0.2, aggregation=one)
        tensor(-1.2000)
    """
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, clipped = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    # If both are equal, the unclipped one keeps its gradient.
    return -aggregate(torch.where(plain <= clipped, plain, clipped), mask=mask, aggregation=aggregation)
