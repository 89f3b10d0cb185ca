"""KL-Cov: a KL penalty on tokens with a large covariance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "kl-cov",
    "ratio": "yes",
    "denominator": "given",
    "masked-slots": "any",
    "knob:penalty": "0.5|2.0",
}


@validate(explain="logprob old_logprob advantage", penalty=NON_NEGATIVE)
@fused(slopes.kl_cov)
def loss(  # noqa: PLR0913 - three columns, their mask, the choice, a number and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    chosen: Bool[Tensor, "*S"],
    penalty: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus ratio times advantage, plus the absolute log-ratio times ``penalty`` at chosen tokens, aggregated.

    .. math:: L_t = -\rho_t A_t + \beta \left|\log \rho_t\right| [t \in C], \quad
        \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        chosen: True at the tokens with a penalty, as ``covariance.largest`` finds them in the whole mini-batch.
        penalty: the factor of the absolute log-ratio (beta), in units of the advantage per nat.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if ``penalty`` is negative.

    Source:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv 2505.22617, with the
        absolute log-ratio of the sampled token for the KL of the paper's penalty, as frameworks have it. The choice is
        an argument, so that micro-batches do not change it.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.kl_cov import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old, one = torch.tensor([[0.0, -9.0]]), torch.tensor([[-1.0, 0.0]]), torch.tensor([[True, False]])
        >>> whole = Aggregation("token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=one, chosen=one, penalty=2.0, aggregation=whole)
        tensor(-0.7183)
    """
    log_ratio = selected(logprob - old_logprob, mask=mask)
    gain = weighed(exponential(log_ratio), selected(advantage, mask=mask))
    penalized = torch.where(chosen, log_ratio, 0.0).abs()
    return -aggregate(gain - penalty * penalized, mask=mask, aggregation=aggregation)
