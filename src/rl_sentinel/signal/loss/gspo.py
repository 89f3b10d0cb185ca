"""GSPO: one ratio for the whole response."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.align import spread
from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, row_means, selected
from rl_sentinel.signal.requirements import CLIP
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "gspo",
    "scope": "sequence",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
@fused(slopes.gspo, columns=slopes.gspo_columns)
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
    r"""PPO's loss with the geometric mean of a response's ratios in place of the ratio of each token.

    .. math:: L_t = -\min(s_t A_t, \operatorname{clip}(s_t, 1 - \epsilon_l, 1 + \epsilon_h) A_t), \quad
        s_t = \operatorname{sg}\left[\exp \frac{1}{|y|} \sum_{j} \log \rho_j\right]
        \frac{\pi_t}{\operatorname{sg}[\pi_t]}

    All tokens of a response share one ratio and are clipped together; each token has a separate share of the
    gradient, so that the advantage may differ from token to token.

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        clip_low: the response's ratio is clipped from below at 1 - ``clip_low``; the paper has 3e-4.
        clip_high: the response's ratio is clipped from above at 1 + ``clip_high``; the paper has 4e-4.
        aggregation: how token losses become one number; the paper uses ``"sequence-mean-token-mean"``.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000.

    Source:
        Group Sequence Policy Optimization, arXiv 2507.18071, the token-level variant; no bound is
        put on the exponent.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.gspo import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[2.0, 0.0]]), torch.zeros(1, 2)
        >>> mask, one = torch.tensor([[True, True]]), Aggregation("sequence-mean-token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=mask, clip_low=0.2, clip_high=9.0, aggregation=one)
        tensor(-2.7183)
    """
    current, gained = selected(logprob, mask=mask), selected(advantage, mask=mask)
    together = row_means(current - old_logprob, mask=mask).detach()
    ratio = exponential(spread(together, mask=mask) + (current - current.detach()))
    plain, clipped = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    return -aggregate(torch.where(plain <= clipped, plain, clipped), mask=mask, aggregation=aggregation)
