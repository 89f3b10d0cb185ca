"""SAPO: a smooth gate on the ratio instead of a clip."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.kernels import slopes
from rl_sentinel.signal.kernels.blocks import fused
from rl_sentinel.signal.ratios import exponential
from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import POSITIVE
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "sapo",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:temperature": "0.5|2.0",
    "knob:negative_temperature": "0.5|2.0",
}


@validate(explain="logprob old_logprob advantage", temperature=POSITIVE, negative_temperature=POSITIVE)
@fused(slopes.sapo)
def loss(  # noqa: PLR0913 - three columns, their mask, the two temperatures and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    temperature: float,
    negative_temperature: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus the advantage times a sigmoid of the ratio's distance to 1.

    .. math:: L_t = -\frac{4}{\tau_t} \sigma(\tau_t (\rho_t - 1)) A_t, \quad
        \tau_t = \tau_{pos} \text{ where } A_t > 0 \text{, else } \tau_{neg}

    At ratio 1 the gradient equals that of REINFORCE; on both sides of 1 the gate closes smoothly.

    Args:
        logprob: log-probs of the current policy, in nats; the gradient is taken to these.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        temperature: how fast the gate closes for positive advantages, per unit of ratio.
        negative_temperature: the temperature of tokens with a negative advantage; larger in the paper.
        aggregation: mode and denominator of the aggregation.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if a temperature is not positive.

    Source:
        Soft Adaptive Policy Optimization, arXiv 2511.20347.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.sapo import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, mask, one = torch.tensor([[0.0]]), torch.tensor([[True]]), Aggregation("token-mean", 1.0)
        >>> loss(new, new, torch.ones(1, 1), mask=mask, temperature=1.0, negative_temperature=1.05, aggregation=one)
        tensor(-2.)
    """
    ratio, gained = exponential(selected(logprob - old_logprob, mask=mask)), selected(advantage, mask=mask)
    steep = torch.where(gained > 0, gained.new_full((), temperature), gained.new_full((), negative_temperature))
    gain = torch.sigmoid(steep * (ratio - 1)) * 4 / steep * gained
    return -aggregate(gain, mask=mask, aggregation=aggregation)
