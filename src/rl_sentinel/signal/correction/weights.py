"""Importance weights for samples drawn by another policy or another engine."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels.blocks import by_rows
from rl_sentinel.signal.reduce import live_rows, row_means, row_sums, selected
from rl_sentinel.signal.requirements import explain_result
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about every function: the weights are constants of the loss.
CLAIMS = {"weights": "constant", "masked": "yes", "masked-slots": "any"}


@validate(explain="logprob rollout_logprob")
def log_ratios(
    logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask
) -> Float[Tensor, "*S"]:
    r"""The log-ratio of the trained policy to the sampling policy at each trained token.

    .. math:: d_t = \log \pi_t - \log \mu_t

    Args:
        logprob: log-probs of the policy that is trained, in nats; usually computed before the update.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.

    Returns:
        Log-ratios in nats, without a gradient; exactly 0 off the mask.

    Raises:
        InputError: if a log-prob on the mask is not finite, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.weights import log_ratios
        >>> one, mask = torch.tensor([[-1.0, torch.nan]]), torch.tensor([[True, False]])
        >>> log_ratios(one, torch.tensor([[-1.5, 0.0]]), mask=mask)
        tensor([[0.5000, 0.0000]])
    """
    return selected((logprob - rollout_logprob).detach(), mask=mask)


@validate()
def token_weights(
    logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask
) -> Float[Tensor, "*S"]:
    r"""The ratio of each token; biased, of low variance.

    .. math:: w_t = \exp d_t

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.

    Returns:
        Ratios without a gradient, infinite where one overflows: see :mod:`~rl_sentinel.signal.correction.bounds`.
        Exactly 0 off the mask.

    Raises:
        InputError: as :func:`log_ratios`.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.weights import token_weights
        >>> same, mask = torch.tensor([[-1.0, 5.0]]), torch.tensor([[True, False]])
        >>> token_weights(same, same, mask=mask)
        tensor([[1., 0.]])
    """
    return selected(log_ratios(logprob, rollout_logprob, mask=mask).exp_(), mask=mask)


@validate()
def sequence_weights(
    logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask
) -> Float[Tensor, " B"]:
    r"""The ratio of the whole response, the product over its trained tokens; unbiased, of high variance.

    .. math:: w_b = \exp \sum_t d_t

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.

    Returns:
        One ratio per response, without a gradient, infinite where it overflows; exactly 0 in a row
        without a trained token.

    Raises:
        InputError: as :func:`log_ratios`.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.weights import sequence_weights
        >>> new, mask = torch.log(torch.tensor([[0.5, 0.5]])), torch.tensor([[True, True]])
        >>> sequence_weights(new, torch.zeros(1, 2), mask=mask)
        tensor([0.2500])
    """
    return _of_rows(row_sums, logprob, rollout_logprob, mask=mask)


@validate()
def geometric_weights(
    logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask
) -> Float[Tensor, " B"]:
    r"""The geometric mean of the response's ratios, which does not grow with its length.

    .. math:: w_b = \exp \frac{1}{n_b} \sum_t d_t

    Args:
        logprob: log-probs of the policy that is trained, in nats.
        rollout_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.

    Returns:
        One ratio per response, without a gradient; exactly 0 in a row without a trained token.

    Raises:
        InputError: as :func:`log_ratios`.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.weights import geometric_weights
        >>> new, mask = torch.log(torch.tensor([[0.5, 0.5]])), torch.tensor([[True, True]])
        >>> geometric_weights(new, torch.zeros(1, 2), mask=mask)
        tensor([0.5000])
    """
    return _of_rows(row_means, logprob, rollout_logprob, mask=mask)


def _of_rows(
    over: Callable[..., Tensor], logprob: Float[Tensor, "*S"], rollout_logprob: Float[Tensor, "*S"], *, mask: Mask
) -> Float[Tensor, " B"]:
    total = _over_rows(logprob, rollout_logprob, mask=mask, over=over)
    explain_result(total, where=mask, logprob=logprob, rollout_logprob=rollout_logprob)
    return torch.where(live_rows(mask), total.exp(), 0.0)


@by_rows
def _over_rows(logprob: Tensor, rollout_logprob: Tensor, *, mask: Mask, over: Callable[..., Tensor]) -> Tensor:
    return over((logprob - rollout_logprob).detach(), mask=mask)
