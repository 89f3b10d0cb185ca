"""Optimal token baseline: rewards to go minus their mean at the same token, weighted by gradient norms."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import places
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import require_logprobs, require_span
from rl_sentinel.signal.scan import discounted_suffix_sums, lined_up, put_back, trained_first
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

#: Claims about this estimator.
CLAIMS = {
    "algorithm": "optimal token baseline",
    "scope": "group",
    "grouping": "id",
    "untrained": "skipped",
    "masked": "yes",
    "masked-slots": "any",
}


@validate(finite="token_reward logprob pi_squared")
def advantages(
    token_reward: Float[Tensor, "*S"],
    logprob: Float[Tensor, "*S"],
    pi_squared: Float[Tensor, "*S"],
    *,
    mask: Mask,
    group: Int[Tensor, " B"],
) -> Float[Tensor, "*S"]:
    r"""Subtract the group's weighted mean at the same trained token from the reward to go.

    .. math:: A_{b,t} = G_{b,t} - \frac{\sum_{j \in g(b)} W_{j,t} G_{j,t}}{\sum_{j \in g(b)} W_{j,t}}, \quad
        W_{b,t} = \sum_{s \le t} \left(1 - 2 \pi_{b,s} + \sum_v \pi_{b,s}(v)^2\right)

    ``t`` counts trained tokens, and the sums are over the responses that have a ``t``-th trained token. ``W`` is the
    squared norm of the gradient of the log-probs up to ``t`` with respect to the logits; if all ``W`` are 0, the
    weights are equal. If only one response has a ``t``-th trained token, its baseline is 0.

    Args:
        token_reward: reward per token, in reward units; ``align.at_last`` places an outcome at the last token.
        logprob: log-prob of each token under the policy that sampled it, in nats.
        pi_squared: the sum of squared probabilities over the vocabulary at each token, from 0 to 1.
        mask: True on trained tokens; other values are ignored.
        group: prompt id per response; any integers, in any order.

    Returns:
        Advantage per token, in reward units, summed in float32 or wider; exactly 0 off the mask.

    Raises:
        InputError: if a number on the mask is not finite, or a dtype or shape is wrong; if a log-prob is above 0, or a
            sum of squared probabilities above 1, by more than rounding, or below 0.

    Source:
        The Optimal Token Baseline, arXiv 2602.07078. Rows without trained tokens are not part of a group; the tail
        of the longest response is found from the tokens, not by a setting.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.advantage.optimal_token_baseline import advantages
        >>> reward = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
        >>> even, mask = torch.full((2, 2), 0.5), torch.ones(2, 2).bool()
        >>> advantages(reward, even.log(), even, mask=mask, group=torch.tensor([0, 0]))
        tensor([[ 0.5000,  0.5000],
                [-0.5000, -0.5000]])
    """
    require_logprobs(logprob=logprob, where=mask)
    why = "it is a sum of squared probabilities"
    require_span("pi_squared", pi_squared, where=mask, span=(0.0, 1.0), slack=0.01, why=why)
    order = trained_first(mask=mask)
    reward, chance, squared = (
        lined_up(selected(x, mask=mask), mask=mask, order=order).to(torch.promote_types(x.dtype, torch.float32))
        for x in (token_reward, logprob, pi_squared)
    )
    where = lined_up(trained(mask), mask=mask, order=order)
    found = _against_the_mean(reward, 1 - 2 * chance.exp() + squared, mask=where, group=group)
    dtype = torch.promote_types(torch.promote_types(token_reward.dtype, logprob.dtype), pi_squared.dtype)
    return put_back(found.to(dtype), mask=mask, order=order)


def _against_the_mean(reward: Tensor, step: Tensor, *, mask: Tensor, group: Tensor) -> Tensor:
    """Subtract the weighted mean from the rewards to go; column n has the n-th trained token of each row.

    ``step`` is the term that each token adds to ``W``.
    """
    gain = discounted_suffix_sums(reward, discount=1.0)
    weight = selected(step.clamp(min=0), mask=mask).cumsum(dim=1)
    turn = torch.arange(mask.shape[1], device=mask.device)
    slot = (places(group).unsqueeze(1) * mask.shape[1] + turn).flatten()

    def summed(values: Tensor) -> Tensor:
        total = torch.zeros(mask.numel(), dtype=values.dtype, device=values.device)
        return total.index_add(0, slot, selected(values, mask=mask).flatten())[slot].view(mask.shape)

    highest = torch.full((mask.numel(),), -torch.inf, dtype=gain.dtype, device=gain.device)
    highest = highest.scatter_reduce(0, slot, gain.masked_fill(~mask, -torch.inf).flatten(), "amax")
    distance = selected(gain - highest[slot].view(mask.shape), mask=mask)
    weight = torch.where(summed(weight) == 0, torch.ones_like(weight), weight)
    relative = distance - summed(weight * distance) / summed(weight)
    alone = summed(torch.ones_like(weight)) == 1
    return selected(torch.where(alone, gain, relative), mask=mask)
