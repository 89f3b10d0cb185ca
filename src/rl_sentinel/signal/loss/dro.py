"""DRO: log-prob times advantage, with a quadratic penalty on the log-ratio; no importance weight."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import NON_NEGATIVE
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "quadratic penalty",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:penalty": "0.5|2.0",
}


@validate(explain="logprob old_logprob advantage", penalty=NON_NEGATIVE)
def loss(  # noqa: PLR0913 - three columns, their mask, a number and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    penalty: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus log-prob times advantage, plus half the squared log-ratio times ``penalty``, aggregated.

    .. math:: L_t = -A_t \log \pi_t + \frac{\tau}{2} \left(\log \pi_t - \log \pi^{old}_t\right)^2

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy that the penalty pulls towards, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        penalty: factor of the squared log-ratio (tau), in units of the advantage per nat.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; only its gradient is meaningful; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or a number on a trained token is not finite;
            if ``penalty`` is negative.

    Source:
        Offline Regularized Reinforcement Learning for Large Language Models Alignment, arXiv 2405.19107, whose
        value function is here the baseline inside the advantage; per token instead of per response.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.dro import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[-1.0, -9.0]]), torch.tensor([[-3.0, 0.0]])
        >>> mask, one = torch.tensor([[True, False]]), Aggregation("token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=mask, penalty=0.5, aggregation=one)
        tensor(2.)
    """
    current = selected(logprob, mask=mask)
    apart = selected(logprob - old_logprob, mask=mask).square()
    return aggregate(penalty / 2 * apart - current * advantage, mask=mask, aggregation=aggregation)
