"""Bounds on importance weights (truncation, clipping, masking) and self-normalization."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.argument_checks import refuse_where
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import NON_NEGATIVE, POSITIVE_LIMIT
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"weights": "constant", "masked": "yes", "masked-slots": "any"}

#: Further claims, by function.
CLAIMS_OF = {
    "truncated": {"knob:high": "1.0|2.5"},
    "clipped": {"knob:low": "0.5|1.0", "knob:high": "1.0|2.5"},
    "masked": {"knob:low": "0.5|1.0", "knob:high": "1.0|2.5"},
}


@validate(rows=True, high=POSITIVE_LIMIT)
def truncated(weight: Float[Tensor, "*S"], *, mask: Mask, high: float) -> Float[Tensor, "*S"]:
    r"""Truncate weights at an upper bound.

    .. math:: w' = \min(w, C)

    Args:
        weight: ratios per token ``[B, T]`` or per response ``[B]``.
        mask: True on trained tokens, or on rows with one; other values are ignored.
        high: the largest weight that counts, a ratio.

    Returns:
        Weights in the shape of ``weight``, without a gradient; exactly 0 off the mask.

    Raises:
        InputError: if a weight on the mask is NaN or negative, a dtype or shape is wrong, or ``high`` is not positive.

    Source:
        Truncated Importance Sampling, Ionides, Journal of Computational and Graphical Statistics 17 (2008).

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.bounds import truncated
        >>> truncated(torch.tensor([0.1, 9.0]), mask=torch.tensor([True, True]), high=2.0)
        tensor([0.1000, 2.0000])
    """
    return _ratios(weight, mask=mask).clamp_(max=high)


@validate(rows=True, ordered="low high", low=NON_NEGATIVE)
def clipped(weight: Float[Tensor, "*S"], *, mask: Mask, low: float, high: float) -> Float[Tensor, "*S"]:
    r"""Clip weights to two bounds.

    .. math:: w' = \min(\max(w, l), u)

    Args:
        weight: ratios per token ``[B, T]`` or per response ``[B]``.
        mask: True on trained tokens, or on rows with one; other values are ignored.
        low: the smallest weight that counts, a ratio; 0 leaves it unbounded.
        high: the largest weight that counts, a ratio.

    Returns:
        Weights in the shape of ``weight``, without a gradient; exactly 0 off the mask, whatever the bounds.

    Raises:
        InputError: if a weight on the mask is NaN or negative, a dtype or shape is wrong, or the bounds are exchanged
            or negative.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.bounds import clipped
        >>> clipped(torch.tensor([0.1, 9.0, 0.0]), mask=torch.tensor([True, True, False]), low=0.5, high=2.0)
        tensor([0.5000, 2.0000, 0.0000])
    """
    return selected(_ratios(weight, mask=mask).clamp_(low, high), mask=mask)


@validate(rows=True, ordered="low high", low=NON_NEGATIVE)
def masked(weight: Float[Tensor, "*S"], *, mask: Mask, low: float, high: float) -> Float[Tensor, "*S"]:
    r"""Set weights outside two bounds to 0: tokens too far from the sampler get no gradient.

    .. math:: w' = w \text{ if } l \le w \le u \text{, else } 0

    A weight of 0 is not a mask: the denominator of the loss still counts the token.

    Args:
        weight: ratios per token ``[B, T]`` or per response ``[B]``.
        mask: True on trained tokens, or on rows with one; other values are ignored.
        low: the smallest weight that is kept, a ratio.
        high: the largest weight that is kept, a ratio.

    Returns:
        Weights in the shape of ``weight``, without a gradient; exactly 0 off the mask and beyond the bounds.

    Raises:
        InputError: if a weight on the mask is NaN or negative, a dtype or shape is wrong, or the bounds are exchanged
            or negative.

    Source:
        IcePop, in Every Step Evolves, arXiv 2510.18855, per token; within the bounds the weight is unchanged.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.bounds import masked
        >>> masked(torch.tensor([0.1, 1.5, torch.inf]), mask=torch.tensor([True, True, True]), low=0.5, high=2.0)
        tensor([0.0000, 1.5000, 0.0000])
    """
    ratio = _ratios(weight, mask=mask)
    return selected(ratio, mask=(ratio >= low) & (ratio <= high))


@validate(rows=True)
def self_normalized(weight: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    r"""Divide weights by their mean, so that they average 1.

    .. math:: w' = \frac{w}{\frac{1}{n} \sum w}

    Call it on the whole mini-batch, after the bounds: the mean is over its input. Weights of 0 count.

    Args:
        weight: finite ratios per token ``[B, T]`` or per response ``[B]``.
        mask: True on trained tokens, or on rows with one; other values are ignored.

    Returns:
        Weights in the shape of ``weight``, without a gradient; exactly 0 off the mask, and all 0 if all weights are 0.

    Raises:
        InputError: if a weight on the mask is negative or not finite, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.bounds import self_normalized
        >>> self_normalized(torch.tensor([1.0, 3.0, 9.0]), mask=torch.tensor([True, True, False]))
        tensor([0.5000, 1.5000, 0.0000])
    """
    found = _ratios(weight, mask=mask)
    mean = (found.sum(dtype=torch.float64) / trained(mask).sum().clamp(min=1)).to(found.dtype)
    why = "expected bounded weights: truncate or mask them first"
    refuse_where(~mean.isfinite(), lambda _: f"weight has a mean that is not finite, {why}")
    return found / torch.where(mean > 0, mean, torch.ones_like(mean))


def _ratios(weight: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    kept = selected(weight.detach(), mask=mask)
    refuse_where(
        ~(kept >= 0),  # also True for NaN
        lambda at: (
            f"weight[{', '.join(map(str, at))}] is {weight[tuple(at)].item()}, expected a ratio of 0 or more: it is "
            "the ratio of two probabilities"
        ),
    )
    return kept
