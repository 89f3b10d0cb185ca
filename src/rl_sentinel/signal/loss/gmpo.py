"""GMPO: the geometric mean of a response's clipped ratios."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.align import spread
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, row_means, selected
from rl_sentinel.signal.requirements import CLIP
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "gmpo",
    "scope": "sequence",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.1|0.4",
    "knob:clip_high": "0.1|0.4",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
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
    r"""Minus the mean advantage of a response times the geometric mean of its clipped ratios.

    .. math:: L = -\bar A \exp \frac{1}{|y|} \sum_t \ell_t, \quad
        \ell_t = \min(\log \rho_t, \epsilon_h) \text{ where } A_t > 0 \text{, else }
        \max(\log \rho_t, -\epsilon_l)

    Each token's log-ratio is clipped before the mean, on the side to which its advantage pushes.

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations; its mean weighs the response.
        mask: True on trained tokens; other values are ignored.
        clip_low: the log-ratio is clipped from below at -``clip_low``, in nats; the paper has 0.4.
        clip_high: the log-ratio is clipped from above at ``clip_high``, in nats; the paper has 0.4.
        aggregation: how responses become one number; with ``"sequence-mean-token-mean"`` each response counts once.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``clip_low`` or ``clip_high`` is not from 0 to 10,000.

    Source:
        Geometric-Mean Policy Optimization, arXiv 2507.20673.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.gmpo import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[2.0, 0.0]]), torch.zeros(1, 2)
        >>> mask, one = torch.tensor([[True, True]]), Aggregation("sequence-mean-token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=mask, clip_low=0.4, clip_high=0.4, aggregation=one)
        tensor(-1.2214)
    """
    log_ratio = selected(logprob - old_logprob, mask=mask)
    cut = torch.where(advantage > 0, log_ratio.clamp(max=clip_high), log_ratio.clamp(min=-clip_low))
    gain = weighed(exponential(row_means(cut, mask=mask)), row_means(advantage, mask=mask))
    return -aggregate(spread(gain, mask=mask), mask=mask, aggregation=aggregation)
