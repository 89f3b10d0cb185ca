"""Reward shaping: shift, scale, clip, suppress unfinished responses, penalize length."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.requirements import (
    ANY,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_COUNT,
    Range,
    require_finite,
    require_range,
)
from rl_sentinel.signal.segments import lengths
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"scope": "sequence"}

#: Further claims, by function.
CLAIMS_OF = {
    "rescaled": {"masked": "yes", "knob:bias": "-0.5|0.5", "knob:scale": "0.5|2.0"},
    "clipped": {"masked": "yes", "knob:least": "-1.5|-0.5", "knob:most": "0.5|1.5"},
    "suppressed": {"masked": "yes", "suppresses": "unscored"},
    "overlong_penalty": {"knob:limit": "4|6", "knob:buffer": "1|3", "knob:factor": "0.5|2.0"},
}


@validate(finite="reward", bias=ANY, scale=POSITIVE)
def rescaled(
    reward: Float[Tensor, " B"], *, live: Bool[Tensor, " B"], bias: float, scale: float
) -> Float[Tensor, " B"]:
    r"""Shift each reward, then scale it.

    .. math:: r'_b = (r_b + \beta) \cdot s

    Args:
        reward: task reward per response, in reward units.
        live: True where the response has at least one trained token.
        bias: added first, in reward units.
        scale: factor on the sum; positive, so that the order of rewards is kept.

    Returns:
        Scaled reward per response; exactly 0 where ``live`` is False.

    Raises:
        InputError: if ``reward`` is not finite on a live row, a dtype or shape is wrong, or ``scale`` is not positive.

    Source:
        The order (bias, scale, then :func:`clipped`) is the one in use; no paper is known for it.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reward import rescaled
        >>> rescaled(torch.tensor([1.0, 5.0]), live=torch.tensor([True, False]), bias=-0.5, scale=4.0)
        tensor([2., 0.])
    """
    return torch.where(live, (reward + bias) * scale, torch.zeros_like(reward))


@validate(finite="reward", ordered="least most")
def clipped(reward: Float[Tensor, " B"], *, live: Bool[Tensor, " B"], least: float, most: float) -> Float[Tensor, " B"]:
    r"""Clip each reward to two bounds.

    .. math:: r'_b = \min(\max(r_b, l), u)

    Args:
        reward: task reward per response, in reward units.
        live: True where the response has at least one trained token.
        least: the smallest reward that counts, in reward units.
        most: the largest reward that counts, in reward units; not below ``least``.

    Returns:
        Reward per response, in reward units; exactly 0 where ``live`` is False, whatever the bounds.

    Raises:
        InputError: if ``reward`` is not finite on a live row, a dtype or shape is wrong, or the bounds are exchanged.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reward import clipped
        >>> clipped(torch.tensor([-9.0, 0.5, 9.0]), live=torch.ones(3).bool(), least=-1.0, most=1.0)
        tensor([-1.0000,  0.5000,  1.0000])
    """
    return torch.where(live, reward.clamp(least, most), torch.zeros_like(reward))


@validate()
def suppressed(
    reward: Float[Tensor, " B"], *, live: Bool[Tensor, " B"], scored: Bool[Tensor, " B"]
) -> Float[Tensor, " B"]:
    r"""Set the reward of responses that never ended to 0.

    .. math:: r'_b = r_b \text{ if scored, else } 0

    The 0 still counts in the statistics that follow. To leave the response out of these as well, pass
    ``live & scored`` as ``live`` to :func:`~rl_sentinel.signal.normalization.normalized`.

    Args:
        reward: task reward per response, in reward units; ignored where it is not scored.
        live: True where the response has at least one trained token.
        scored: True where the response ended by itself; otherwise its reward is not known.

    Returns:
        Reward per response, in reward units; exactly 0 where it is not live or not scored.

    Raises:
        InputError: if ``reward`` is not finite on a live and scored row, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reward import suppressed
        >>> reward, ended = torch.tensor([1.0, 100.0]), torch.tensor([True, False])
        >>> suppressed(reward, live=torch.tensor([True, True]), scored=ended)
        tensor([1., 0.])
    """
    require_finite("reward", reward, where=live & scored, why="it is compared (mask the row to leave it out)")
    return torch.where(live & scored, reward, torch.zeros_like(reward))


@validate(limit=POSITIVE_COUNT, factor=NON_NEGATIVE)
def overlong_penalty(length: Int[Tensor, " B"], *, limit: int, buffer: int, factor: float) -> Float[Tensor, " B"]:
    r"""A penalty that grows over the last tokens before the limit, to be added to the reward.

    .. math:: p_b = -f \cdot \min\left(\max\left(\frac{l_b - (L - c)}{c}, 0\right), 1\right)

    Args:
        length: tokens of the response, in tokens.
        limit: length ``L`` at which the full penalty is reached, in tokens.
        buffer: number of tokens ``c`` before the limit over which the penalty grows; from 1 to ``limit``.
        factor: the full penalty, in reward units; the paper has 1.

    Returns:
        Penalty per response, in reward units: 0 up to ``limit - buffer`` tokens, never below ``-factor``.

    Raises:
        InputError: if a length is negative or not a whole number, ``limit`` is below 1, ``buffer`` is not from 1 to
            ``limit``, or ``factor`` is negative.

    Source:
        DAPO, arXiv 2503.14476, the soft overlong punishment. Beyond the limit the full penalty applies.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.reward import overlong_penalty
        >>> overlong_penalty(torch.tensor([4, 6, 8, 9]), limit=8, buffer=4, factor=1.0)
        tensor([ 0.0000, -0.5000, -1.0000, -1.0000])
    """
    length = lengths(length)
    require_range("buffer", buffer, Range(1, limit, whole=True))
    over = (length - (limit - buffer)).to(torch.get_default_dtype()) / buffer
    return over.clamp(0, 1) * -factor + 0.0
