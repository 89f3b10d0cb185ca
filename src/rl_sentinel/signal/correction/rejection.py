"""Rejection: keep tokens or responses whose estimated KL to the sampling policy is within bounds."""

from collections.abc import Callable, Mapping
from math import log
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.correction.weights import log_ratios
from rl_sentinel.signal.kernels.blocks import by_rows
from rl_sentinel.signal.reduce import live_rows, row_maxima, row_means, row_sums
from rl_sentinel.signal.requirements import SHARE, explain_result
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

Estimator = Literal["k1", "k2", "k3"]
Over = Literal["sum", "mean", "max"]

#: Claims about every function.
CLAIMS = {"masked": "yes", "masked-slots": "any"}

#: Further claims, by function.
CLAIMS_OF = {"vetoed": {"knob:floor": "0.1|1.0"}}

#: Estimator -> estimate of KL(sampler || trained policy) from the log-ratio of the trained policy to the sampler.
_ESTIMATES: Mapping[Estimator, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: -d,
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: torch.expm1(d) - d,
}

_OVER: Mapping[Over, Callable[..., Tensor]] = {"sum": row_sums, "mean": row_means, "max": row_maxima}


@validate(ordered="low high")
def tokens_kept(  # noqa: PLR0913 - two columns, their mask, the estimate and its two bounds
    logprob: Float[Tensor, "*S"],
    rollout_logprob: Float[Tensor, "*S"],
    *,
    mask: Mask,
    estimator: Estimator,
    low: float,
    high: float,
) -> Bool[Tensor, "*S"]:
    r"""Select the trained tokens that have a KL estimate within two bounds.

    .. math:: l \le k_t \le u

    With :math:`d = \log \pi - \log \mu` the estimates are k1: :math:`-d`, k2: :math:`d^2 / 2`, k3:
    :math:`e^d - 1 - d`. All three estimate :math:`KL(\mu \| \pi)`, because the tokens are samples of :math:`\mu`.

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.
        estimator: ``"k1"``, ``"k2"`` or ``"k3"``.
        low: the smallest estimate that is kept, in nats; ``-inf`` for k2 and k3, which are never negative.
        high: the largest estimate that is kept, in nats.

    Returns:
        True at trained tokens that are kept; False off the mask.

    Raises:
        InputError: if a log-prob on the mask is not finite, a dtype or shape is wrong, the estimator is unknown,
            or ``low`` is above ``high``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.rejection import tokens_kept
        >>> new, mask = torch.tensor([[-1.0, -3.0]]), torch.tensor([[True, True]])
        >>> tokens_kept(new, torch.full((1, 2), -1.0), mask=mask, estimator="k1", low=-0.5, high=0.5)
        tensor([[ True, False]])
    """
    return trained(mask) & _within(_ESTIMATES[estimator](log_ratios(logprob, rollout_logprob, mask=mask)), low, high)


@validate(ordered="low high")
def rows_kept(  # noqa: PLR0913 - two columns, their mask, the estimate, its reduction, and its two bounds
    logprob: Float[Tensor, "*S"],
    rollout_logprob: Float[Tensor, "*S"],
    *,
    mask: Mask,
    estimator: Estimator,
    over: Over,
    low: float,
    high: float,
) -> Bool[Tensor, " B"]:
    r"""Select the responses whose KL estimate, reduced over their trained tokens, is within two bounds.

    .. math:: l \le \operatorname{over}_t k_t \le u

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.
        estimator: ``"k1"``, ``"k2"`` or ``"k3"``, as in :func:`tokens_kept`.
        over: ``"sum"``, ``"mean"`` or ``"max"`` over the response's trained tokens.
        low: the smallest reduced estimate that is kept, in nats (per token for a mean); ``-inf`` for k2 and k3.
        high: the largest reduced estimate that is kept, in nats (per token for a mean).

    Returns:
        True for responses that are kept; False in a row without a trained token. Pass it as ``live``
        to the functions that follow.

    Raises:
        InputError: as :func:`tokens_kept`, and if ``over`` is not one of the three.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.rejection import rows_kept
        >>> new, mask = torch.tensor([[-1.0, -3.0], [-1.0, -1.0]]), torch.ones(2, 2).bool()
        >>> given = {"mask": mask, "estimator": "k2", "low": 0.0, "high": 0.5}
        >>> rows_kept(new, torch.full((2, 2), -1.0), over="mean", **given)
        tensor([False,  True])
    """
    row, live = _row_estimates(logprob, rollout_logprob, mask=mask, estimator=estimator, over=over), live_rows(mask)
    # A maximum hides minus infinity, so all log-ratios are checked.
    checked = log_ratios(logprob, rollout_logprob, mask=mask) if over == "max" else row[live]
    explain_result(checked, where=mask, logprob=logprob, rollout_logprob=rollout_logprob)
    return live & _within(row, low, high)


@validate(floor=SHARE)
def vetoed(
    logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask, floor: float
) -> Bool[Tensor, " B"]:
    r"""Select the responses without a token that the trained policy considers almost impossible.

    .. math:: \min_t e^{d_t} \ge f

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.
        floor: the smallest ratio of a token that is not vetoed, from 0 to 1.

    Returns:
        True for responses that are kept; False in a row without a trained token.

    Raises:
        InputError: if a log-prob on the mask is not finite, a dtype or shape is wrong, or ``floor`` is not
            above 0 and at most 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.rejection import vetoed
        >>> new, mask = torch.tensor([[-1.0, -30.0], [-1.0, -1.0]]), torch.ones(2, 2).bool()
        >>> vetoed(new, torch.full((2, 2), -1.0), mask=mask, floor=1e-4)
        tensor([False,  True])
    """
    worst = -row_maxima(-log_ratios(logprob, rollout_logprob, mask=mask), mask=mask)
    return live_rows(mask) & (worst >= log(floor))


@by_rows
def _row_estimates(logprob: Tensor, rollout_logprob: Tensor, *, mask: Mask, estimator: Estimator, over: Over) -> Tensor:
    return _OVER[over](_ESTIMATES[estimator]((logprob - rollout_logprob).detach()), mask=mask)


def _within(estimate: Float[Tensor, "*S"], low: float, high: float) -> Bool[Tensor, "*S"]:
    return (estimate >= low) & (estimate <= high)
