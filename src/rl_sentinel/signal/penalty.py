"""KL penalties: subtracted from the reward, or added to the loss; the raw KL stays available for the log."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"masked": "yes", "masked-slots": "any", "denominator": "given", "mean": "yes", "knob:coefficient": "0.1|0.5"}


class Penalized(NamedTuple):
    """The reward after the KL penalty, and the raw KL.

    ``token_reward`` ``[B, T]`` goes into an advantage, in reward units; ``kl`` ``[B, T]`` into the log
    and the controller, in nats per token. They share no memory with each other or with the inputs.
    """

    token_reward: Float[Tensor, "*S"]
    kl: Float[Tensor, "*S"]


@validate(finite="token_reward kl", coefficient=NON_NEGATIVE)
def in_reward(
    token_reward: Float[Tensor, "*S"],
    kl: Float[Tensor, "*S"],
    *,
    mask: Mask,
    coefficient: float,
) -> Penalized:
    r"""Subtract the KL penalty from each token's reward; return it with the raw KL.

    .. math:: r'_t = r_t - \beta k_t

    Neither has a gradient. ``kl`` does not include the coefficient or the reward, so that it can be logged
    as a KL.

    Args:
        token_reward: reward per token, in reward units; ``align.at_last`` places an outcome at the last token.
        kl: an estimate of the KL to the reference, in nats per token, of log-probs before the update.
        mask: True on trained tokens; other values are ignored.
        coefficient: weight of the KL, in reward units per nat; 0 or more.

    Returns:
        The shaped reward and the raw KL, two new tensors; exactly 0 off the mask.

    Raises:
        InputError: if a number on the mask is not finite, a dtype or shape is wrong, or ``coefficient`` is negative.

    Source:
        Fine-Tuning Language Models from Human Preferences, arXiv 1909.08593, with any estimate of the KL.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.penalty import in_reward
        >>> reward, kl = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, -0.5]])
        >>> shaped, raw = in_reward(reward, kl, mask=torch.tensor([[True, True]]), coefficient=0.1)
        >>> shaped, raw
        (tensor([[-0.0500,  1.0500]]), tensor([[ 0.5000, -0.5000]]))
    """
    raw = selected(kl, mask=mask).detach()
    return Penalized(selected(token_reward, mask=mask).detach() - coefficient * raw, raw)


@validate(explain="kl", coefficient=NON_NEGATIVE)
def as_loss(kl: Float[Tensor, "*S"], *, mask: Mask, coefficient: float, aggregation: Aggregation) -> Float[Tensor, ""]:
    r"""The KL as a loss term, aggregated like the policy loss.

    .. math:: L = \beta \operatorname{agg}(k)

    Args:
        kl: an estimate of the KL to the reference, in nats per token, of the current log-probs. The estimator decides
            the gradient; ``kl.k2``, ``kl.k1_plus`` and ``kl.k3_plus`` have the gradient of the KL in expectation.
        mask: True on trained tokens; other values are ignored.
        coefficient: weight of the KL beside the policy loss, 0 or more.
        aggregation: mode and denominator of the aggregation; use that of the policy loss.

    Returns:
        The term, in units of the loss; 0 where no token is trained.

    Raises:
        InputError: if a number on the mask is not finite, a dtype or shape is wrong, or ``coefficient`` is negative.

    Source:
        DeepSeekMath, arXiv 2402.03300, where the KL is k3.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.penalty import as_loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> kl, mask = torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]])
        >>> as_loss(kl, mask=mask, coefficient=0.1, aggregation=Aggregation("token-mean", 1.0))
        tensor(0.0500)
    """
    return coefficient * aggregate(kl, mask=mask, aggregation=aggregation)
