"""Clip-Cov: PPO's clipped loss without the gradient of tokens with a large covariance."""

import torch
from jaxtyping import Bool, Float
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
    "algorithm": "clip-cov",
    "ratio": "yes",
    "on-policy-gradient": "other",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
@fused(slopes.clip_cov)
def loss(  # noqa: PLR0913 - three columns, their mask, the choice, the two clips and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    chosen: Bool[Tensor, "*S"],
    clip_low: float,
    clip_high: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""PPO's clipped loss; chosen tokens that PPO does not clip get value 0 and no gradient.

    .. math:: L_t = L^{PPO}_t [t \notin C \lor t \in K]

    :math:`C` are the chosen tokens, :math:`K` the tokens that PPO clips: these keep PPO's value, and have no gradient.

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        chosen: True at the tokens that are left out, as ``covariance.drawn_between`` finds them in the whole
            mini-batch.
        clip_low: the ratio is clipped from below at 1 - ``clip_low``.
        clip_high: the ratio is clipped from above at 1 + ``clip_high``.
        aggregation: how token losses become one number; chosen tokens still count in the denominator.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000.

    Source:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv 2505.22617. The choice
        is an argument, so that micro-batches do not change it.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.clip_cov import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, mask = torch.zeros(1, 2), torch.ones(1, 2).bool()
        >>> one, first = Aggregation("token-mean", 2.0), torch.tensor([[True, False]])
        >>> loss(new, new, torch.ones(1, 2), mask=mask, chosen=first, clip_low=0.2, clip_high=0.2, aggregation=one)
        tensor(-0.5000)
    """
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    plain, clipped = weighed(ratio, gained), ratio.clamp(1 - clip_low, 1 + clip_high) * gained
    moves = plain <= clipped
    gain = torch.where(moves, torch.where(chosen, 0.0, plain), clipped)
    return -aggregate(gain, mask=mask, aggregation=aggregation)
