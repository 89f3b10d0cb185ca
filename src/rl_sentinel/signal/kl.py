r"""KL estimators from sampled tokens: log-probs of the policy and of a reference.

With :math:`d = \log \pi - \log \pi_{ref}` at a sampled token, each estimates
:math:`KL(\pi \| \pi_{ref})`, in nats per token. k1, k2 and k3 are from John Schulman's note
"Approximating KL divergence" (joschu.net/blog/kl-approx.html).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import named, validate

#: Claims about every estimator.
CLAIMS = {"masked": "yes", "masked-slots": "any"}


@validate(explain="logprob ref_logprob")
def k1(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The log-ratio ``d``: unbiased, of either sign.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k1
        >>> k1(torch.tensor([[-1.0, 0.0]]), torch.tensor([[-1.5, -9.0]]), mask=torch.tensor([[True, False]]))
        tensor([[0.5000, 0.0000]])
    """
    return selected(logprob - ref_logprob, mask=mask)


@named
def k2(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """Half the squared log-ratio, ``d**2 / 2``: biased, never negative.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k2
        >>> k2(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), mask=torch.tensor([[True]]))
        tensor([[0.1250]])
    """
    return k1(logprob, ref_logprob, mask=mask).square() / 2


@named
def k3(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """``exp(-d) - 1 + d``: unbiased, never negative; not clipped.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k3
        >>> k3(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), mask=torch.tensor([[True]]))
        tensor([[0.]])
    """
    log_ratio = k1(logprob, ref_logprob, mask=mask)
    return torch.expm1(-log_ratio) + log_ratio


@named
def absolute(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The absolute log-ratio, ``abs(d)``: biased, never negative, with a kink at 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import absolute
        >>> absolute(torch.tensor([[-2.0]]), torch.tensor([[-1.5]]), mask=torch.tensor([[True]]))
        tensor([[0.5000]])
    """
    return k1(logprob, ref_logprob, mask=mask).abs()


@named
def k1_plus(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The value of :func:`k1` with the gradient of :func:`k2`, whose expectation is the gradient of the KL.

    The gradient of k1 itself is the score, whose expectation over samples of the policy is 0.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k1_plus
        >>> new = torch.tensor([[-1.0]], requires_grad=True)
        >>> k1_plus(new, torch.tensor([[-1.5]]), mask=torch.tensor([[True]])).sum().backward()
        >>> new.grad
        tensor([[0.5000]])
    """
    return _straight_through(k1(logprob, ref_logprob, mask=mask), k2(logprob, ref_logprob, mask=mask))


@named
def k3_plus(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The value of :func:`k3` with the gradient of :func:`k2`, whose expectation is the gradient of the KL.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k3_plus
        >>> new = torch.tensor([[-1.0]], requires_grad=True)
        >>> k3_plus(new, torch.tensor([[-1.5]]), mask=torch.tensor([[True]])).sum().backward()
        >>> new.grad
        tensor([[0.5000]])
    """
    return _straight_through(k3(logprob, ref_logprob, mask=mask), k2(logprob, ref_logprob, mask=mask))


@named
def absolute_plus(logprob: Float[Tensor, "*S"], ref_logprob: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The value of :func:`absolute` with the gradient of :func:`k2`, whose expectation is the gradient of the KL.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import absolute_plus
        >>> absolute_plus(torch.tensor([[-1.5]]), torch.tensor([[-1.0]]), mask=torch.tensor([[True]]))
        tensor([[0.5000]])
    """
    return _straight_through(absolute(logprob, ref_logprob, mask=mask), k2(logprob, ref_logprob, mask=mask))


@validate(explain="estimate logprob old_logprob")
def importance_weighted(
    estimate: Float[Tensor, "*S"],
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    *,
    mask: Mask,
) -> Float[Tensor, "*S"]:
    r"""Multiply an estimate by the importance ratio to the sampling policy, which removes the bias of stale samples.

    .. math:: \rho_t \hat k_t, \quad \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    The ratio carries its gradient: with k3, the expectation of the whole gradient over the old policy's
    samples is then the gradient of the KL.

    Args:
        estimate: the result of an estimator of this module, in nats per token.
        logprob: log-probs of the current policy, in nats.
        old_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.

    Returns:
        The weighted estimate, in nats per token; exactly 0 off the mask. No bound is put on the ratio.

    Raises:
        InputError: if the result is not finite because a number on the mask is not, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import importance_weighted
        >>> one, mask = torch.tensor([[2.0]]), torch.tensor([[True]])
        >>> importance_weighted(one, torch.tensor([[0.0]]), torch.tensor([[0.0]]), mask=mask)
        tensor([[2.]])
    """
    return weighed(exponential(selected(logprob - old_logprob, mask=mask)), selected(estimate, mask=mask))


def _straight_through(value: Float[Tensor, "*S"], slope: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Return the first tensor's values, exactly, with the second tensor's gradient."""
    return value.detach() + (slope - slope.detach())
