"""Importance sampling: ratio times advantage, without a clip."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "importance sampling",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
}


@validate(explain="logprob old_logprob advantage")
@fused(slopes.importance_sampling)
def loss(
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus ratio times advantage, aggregated.

    .. math:: L_t = -\rho_t A_t, \quad \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy that sampled, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not.

    Source:
        Proximal Policy Optimization, arXiv 1707.06347, equation 6: the objective before it is clipped.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.importance_sampling import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[1.0]]), torch.tensor([[0.0]])
        >>> one = Aggregation("token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 1), mask=torch.tensor([[True]]), aggregation=one)
        tensor(-2.7183)
    """
    ratio = exponential(selected(logprob - old_logprob, mask=mask))
    return -aggregate(weighed(ratio, selected(advantage, mask=mask)), mask=mask, aggregation=aggregation)
