r"""Estimators of a KL from samples: the policy's own tokens, its log-probs and those of a reference.

With :math:`d = \log \pi - \log \pi_{ref}` at a sampled token, each estimates
:math:`KL(\pi \| \pi_{ref})`, in nats per token.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.reduce import selected

#: What the estimators say of themselves, besides their names.
CLAIMS = {"masked": "yes", "masked-slots": "any"}


def k1(
    logprob: Float[Tensor, "B T"], ref_logprob: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """The log-ratio ``d``: unbiased, of either sign.

    Example:
        >>> k1(torch.tensor([[-1.0, 0.0]]), torch.tensor([[-1.5, -9.0]]), mask=torch.tensor([[True, False]]))
        tensor([[0.5000, 0.0000]])
    """
    return selected(logprob - ref_logprob, mask=mask)


def k2(
    logprob: Float[Tensor, "B T"], ref_logprob: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Half the squared log-ratio, ``d**2 / 2``: biased, never negative.

    Example:
        >>> k2(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), mask=torch.tensor([[True]]))
        tensor([[0.1250]])
    """
    return k1(logprob, ref_logprob, mask=mask).square() / 2


def k3(
    logprob: Float[Tensor, "B T"], ref_logprob: Float[Tensor, "B T"], *, mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """``exp(-d) - 1 + d``: unbiased, never negative; no cut is applied.

    Example:
        >>> k3(torch.tensor([[-1.0]]), torch.tensor([[-1.0]]), mask=torch.tensor([[True]]))
        tensor([[0.]])
    """
    log_ratio = k1(logprob, ref_logprob, mask=mask)
    return torch.expm1(-log_ratio) + log_ratio
