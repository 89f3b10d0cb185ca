"""KL-Cov: tokens of large covariance are held near the old policy by a penalty."""

from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.blocks import Sloped, summed
from rl_sentinel.signal.checks import answered, checked, within
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.reduce import Aggregation, selected
from rl_sentinel.signal.segments import Mask

#: What the loss says of itself.
CLAIMS = {
    "algorithm": "kl-cov",
    "ratio": "yes",
    "denominator": "given",
    "masked-slots": "any",
    "knob:penalty": "0.5|2.0",
}


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
    r"""Minus the weighted advantage, and at chosen tokens the absolute log-ratio by a coefficient, aggregated.

    .. math:: L_t = -\rho_t A_t + \beta \left|\log \rho_t\right| [t \in C], \quad
        \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or deviations.
        mask: True on trained tokens; anything may stand elsewhere.
        chosen: True at the tokens that are held, as ``covariance.largest`` finds them in the whole mini-batch.
        penalty: what the absolute log-ratio is multiplied by (beta), in units of the advantage per nat.
        aggregation: how token losses become one number, and by what they are divided.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a shape or kind is wrong, or a number on the mask is not finite where it counts;
            if ``penalty`` is negative.

    Source:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv 2505.22617, with the
        absolute log-ratio of the sampled token for the KL of the paper's penalty, as frameworks have it. The choice is
        made before and passed, so that a micro-batch does not change it.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.kl_cov import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old, one = torch.tensor([[0.0, -9.0]]), torch.tensor([[-1.0, 0.0]]), torch.tensor([[True, False]])
        >>> whole = Aggregation("token-mean", 1.0)
        >>> loss(new, old, torch.ones(1, 2), mask=one, chosen=one, penalty=2.0, aggregation=whole)
        tensor(-0.7183)
    """
    checked("B T", logprob=logprob, old_logprob=old_logprob, advantage=advantage, chosen=chosen, mask=mask)
    within("penalty", penalty, least=0.0)

    def gain(mask: Tensor, logprob: Tensor, old_logprob: Tensor, advantage: Tensor, chosen: Tensor) -> Sloped:
        log_ratio = selected(logprob - old_logprob, mask=mask)
        plain, held = weighed(exponential(log_ratio), selected(advantage, mask=mask)), selected(log_ratio, mask=chosen)
        return plain - penalty * held.abs(), plain - penalty * held.sign()

    found = -summed(gain, logprob, old_logprob, advantage, chosen, mask=mask, aggregation=aggregation)
    return answered(found, mask=mask, logprob=logprob, old_logprob=old_logprob, advantage=advantage)
