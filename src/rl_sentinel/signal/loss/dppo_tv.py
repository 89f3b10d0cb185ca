"""DPPO with total variation: tokens whose probability moved too far, and would move further, are dropped."""

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.signal.reduce import Aggregation, aggregate, selected
from rl_sentinel.signal.requirements import CEILING, CLIP, require_logprobs
from rl_sentinel.signal.segments import Mask
from rl_sentinel.signal.validation import validate

#: Claims about this loss.
CLAIMS = {
    "algorithm": "dppo tv",
    "ratio": "yes",
    "denominator": "given",
    "mean": "yes",
    "masked-slots": "any",
    "knob:clip_low": "0.002|0.3",
    "knob:clip_high": "0.002|0.3",
}


@validate(explain="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP, ceiling=CEILING)
def loss(  # noqa: PLR0913 - three columns, their mask, three bounds and the aggregation
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    clip_low: float,
    clip_high: float,
    ceiling: float,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    r"""Minus log-prob times advantage times a constant weight, without the dropped tokens, aggregated.

    .. math:: L_t = -A_t \, \operatorname{sg}[\min(\rho_t, c)] \log \pi_t \, [t \in K], \quad
        \rho_t = \exp(\log \pi_t - \log \pi^{old}_t)

    :math:`c` is ``ceiling``, and :math:`K` are the tokens that are not dropped. A token is dropped if the distance of
    its probabilities, :math:`|\pi_t - \pi^{old}_t|`, is above ``clip_high`` and the advantage would raise a probability
    that has risen, or above ``clip_low`` and the advantage would lower a probability that has fallen.

    Args:
        logprob: log-probs of the current policy, in nats, at most 0; the gradient is taken with respect to these.
        old_logprob: log-probs of the policy before the update, in nats, at most 0.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens; other values are ignored.
        clip_low: how far a probability may fall, a difference of probabilities.
        clip_high: how far a probability may rise, a difference of probabilities.
        ceiling: the largest weight, a ratio above 1.
        aggregation: how token losses become one number; dropped tokens still count in the denominator.

    Returns:
        The loss; 0 where no token is trained.

    Raises:
        InputError: if a dtype or shape is wrong, or the loss is not finite because a number on a trained token is not;
            if a log-prob is above 0 by more than rounding, ``clip_low`` or ``clip_high`` is not from 0 to 10,000, or
            ``ceiling`` is not above 1.

    Source:
        Rethinking the Trust Region in LLM Reinforcement Learning, arXiv 2602.04879, the binary approximation: the
        sampled token against all others. Each side has its own bound, and the weight is at most ``ceiling``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.loss.dppo_tv import loss
        >>> from rl_sentinel.signal.reduce import Aggregation
        >>> new, old = torch.tensor([[0.6, 0.9]]).log(), torch.tensor([[0.5, 0.5]]).log()
        >>> mask, two = torch.ones(1, 2).bool(), Aggregation("token-mean", 2.0)
        >>> bounds = {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}
        >>> loss(new, old, torch.ones(1, 2), mask=mask, **bounds, aggregation=two)
        tensor(0.3065)
    """
    require_logprobs(logprob=logprob, old_logprob=old_logprob, where=mask)
    current, before = (selected(x, mask=mask) for x in (logprob, old_logprob))
    log_ratio = (current - before).detach()
    moved = (current.detach().exp() - before.exp()).abs()
    far = torch.where(advantage > 0, moved > clip_high, moved > clip_low)
    away = torch.where(advantage > 0, log_ratio > 0, log_ratio < 0)
    gain = advantage * log_ratio.exp().clamp(max=ceiling) * current
    keep = torch.where(far & away, torch.zeros_like(gain), gain)
    return -aggregate(keep, mask=mask, aggregation=aggregation)
