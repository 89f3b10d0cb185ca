"""REINFORCE: the log-prob times the advantage."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {"algorithm": "reinforce", "denominator": "given", "mean": "yes", "masked-slots": "any"}


@validate(explain="logprob advantage")
def loss(
    logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus the log-prob times the advantage.

    .. math:: L_t = -A_t \log \pi_t

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained. Its value has no meaning; only its gradient counts.

    Raises:
        InputError: if a dtype or shape is wrong, or a number on a trained token is not finite.

    Source:
        Williams, Simple Statistical Gradient-Following Algorithms, Machine Learning 8 (1992). GPG's
        loss, arXiv 2504.02546, is this one with the advantages of ``signal.advantage.gpg``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.reinforce import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> one = Aggregation("token-mean", 1.0)
        >>> loss(torch.tensor([[-2.0]]), torch.ones(1, 1), mask=torch.tensor([[True]]), aggregation=one)
        tensor(2.)
    """
    gain = selected(logprob, mask=mask) * advantage
    return -aggregate(gain, mask=mask, aggregation=aggregation)
