"""CISPO: a clipped ratio as a constant weight, so that no token loses its gradient."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import CLIP
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "cispo",
    "ratio": "yes",
    "weights": "constant",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
@fused(slopes.cispo)
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
    r"""REINFORCE's loss, weighted by the clipped ratio, through which no gradient flows.

    .. math:: L_t = -\operatorname{sg}[\operatorname{clip}(\rho_t, 1 - \epsilon_l, 1 + \epsilon_h)] A_t \log \pi_t

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy that sampled, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        clip_low: the ratio is clipped from below at 1 - ``clip_low``; 1 or more leaves it unbounded below.
        clip_high: the ratio is clipped from above at 1 + ``clip_high``.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained. Only its gradient is meaningful.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000.

    Source:
        MiniMax-M1, arXiv 2506.13585.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.cispo import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, mask, one = torch.tensor([[-1.0]]), torch.tensor([[True]]), Aggregation("token-mean", 1.0)
        >>> old = torch.tensor([[-2.0]])
        >>> loss(new, old, torch.ones(1, 1), mask=mask, clip_low=1.0, clip_high=0.5, aggregation=one)
        tensor(1.5000)
    """
    ratio = selected(logprob - old_logprob, mask=mask).exp().detach()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high) * selected(advantage, mask=mask)
    return -aggregate(weight * selected(logprob, mask=mask), mask=mask, aggregation=aggregation)
