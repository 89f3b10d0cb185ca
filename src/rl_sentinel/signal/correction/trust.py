"""Drop responses or tokens from which the current policy has moved too far: OPSM and M2PO."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.signal.kernels.blocks import by_rows
from rl_sentinel.signal.reduce import live_rows, row_means, selected
from rl_sentinel.signal.requirements import LIMIT, POSITIVE, explain_result, require_columns, require_finite
from rl_sentinel.signal.segments import Mask, Segments, trained
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"masked": "yes", "masked-slots": "any"}

#: Further claims, by function.
CLAIMS_OF = {
    "off_policy_sequences_kept": {"knob:threshold": "0.0|0.5"},
    "second_moment_kept": {"knob:threshold": "0.0|1.0"},
}


@validate(threshold=LIMIT)
def off_policy_sequences_kept(
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"] | Float[Tensor, " B"],
    *,
    mask: Mask,
    threshold: float,
) -> Bool[Tensor, " B"]:
    r"""Off-policy sequence masking: drop responses with a negative advantage that the policy has moved away from.

    .. math:: \text{dropped if } \bar A_b < 0 \text{ and } \frac{1}{n_b} \sum_t (\log \pi^{old}_t - \log \pi_t) > \delta

    There is one decision for each response, from its trained tokens alone. If advantages differ from token
    to token, their mean decides, so that a response is dropped as a whole or not at all.

    Args:
        logprob: log-probs of the current policy, in nats.
        old_logprob: log-probs of the policy that sampled, in nats.
        advantage: advantage per token, in reward units or standard deviations; with padded columns also per response
            ``[B]``. With packed columns, use ``align.spread`` to make it one per token: shapes cannot tell them apart.
        mask: True on trained tokens; other values are ignored.
        threshold: how far the policy may have moved away, in nats per token; 0 or more.

    Returns:
        True for responses that are kept; False in a row without a trained token.

    Raises:
        InputError: if a number on the mask or of a live row is not finite, a dtype or shape is wrong, or
            ``threshold`` is negative.

    Source:
        Off-Policy Sequence Masking, DeepSeek-V3.2, arXiv 2512.02556.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.trust import off_policy_sequences_kept
        >>> old, mask = torch.ones(1, 3), torch.ones(1, 3).bool()
        >>> advantage = torch.tensor([[-0.5, 0.25, -0.25]])
        >>> off_policy_sequences_kept(old - 1, old, advantage, mask=mask, threshold=0.1)
        tensor([False])
    """
    away = _away(logprob, old_logprob, mask=mask)
    explain_result(away, where=mask, logprob=logprob, old_logprob=old_logprob)
    live, why = live_rows(mask), "a trained token needs a finite value (mask the token to leave it out)"
    if advantage.dim() == 1 and not isinstance(mask, Segments):
        require_finite("advantage", advantage, where=live, why=why)
        mean = advantage
    else:
        require_columns(mask, advantage=advantage)
        require_finite("advantage", advantage, where=mask, why=why)
        mean = row_means(advantage, mask=mask)
    return live & ~((mean < 0) & (away > threshold))


@by_rows
def _away(logprob: Tensor, old_logprob: Tensor, *, mask: Mask) -> Tensor:
    return row_means((old_logprob - logprob).detach(), mask=mask)


@validate(threshold=LIMIT)
def second_moment_kept(
    logprob: Float[Tensor, "*S"], old_logprob: Float[Tensor, "*S"], *, mask: Mask, threshold: float
) -> Bool[Tensor, "*S"]:
    r"""Keep tokens in the order of their squared log-ratio, as long as its mean over the kept ones is within a bound.

    .. math:: \frac{1}{|K|} \sum_{t \in K} (\log \pi_t - \log \pi^{old}_t)^2 \le \tau

    Tokens that moved equally far are kept or dropped together, so that the order of rows has no effect.
    Call it on the whole mini-batch: the mean is over its input.

    Args:
        logprob: log-probs of the current policy, in nats.
        old_logprob: log-probs of the policy that sampled, in nats.
        mask: True on trained tokens; other values are ignored.
        threshold: bound on the mean squared log-ratio, in square nats; 0 or more.

    Returns:
        True at trained tokens that are kept; False off the mask. All False if every token moved too far.

    Raises:
        InputError: if a log-prob on the mask is not finite, a dtype or shape is wrong, or ``threshold`` is negative.

    Source:
        M2PO, in Prosperity before Collapse, arXiv 2510.01161.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.trust import second_moment_kept
        >>> new, mask = torch.tensor([[0.0, 0.1, 2.0]]), torch.ones(1, 3).bool()
        >>> second_moment_kept(new, torch.zeros(1, 3), mask=mask, threshold=0.04)
        tensor([[ True,  True, False]])
    """
    moved = selected((logprob - old_logprob).detach(), mask=mask).abs()
    explain_result(moved, where=mask, logprob=logprob, old_logprob=old_logprob)
    ordered = moved[trained(mask)].sort().values
    count = torch.arange(1, len(ordered) + 1, device=ordered.device)
    fits = ordered.double().square().cumsum(0) <= threshold * count
    last = torch.ones_like(fits)
    last[:-1] = ordered[1:] != ordered[:-1]
    bound = torch.where(fits & last, ordered, torch.full_like(ordered, -1.0)).amax() if len(ordered) else -1.0
    return trained(mask) & (moved <= bound)


@validate(denominator=POSITIVE)
def rejected_fraction(keep: Bool[Tensor, " B"], *, live: Bool[Tensor, " B"], denominator: float) -> Float[Tensor, ""]:
    r"""The share of responses that were dropped; each counts once, whatever its length or number of ranks.

    .. math:: \frac{1}{D} \sum_b [\text{live}_b \text{ and not kept}_b]

    Args:
        keep: one decision per response.
        live: True where the response has at least one trained token, before the decision.
        denominator: live rows of the whole mini-batch over all ranks, a count; shares of micro-batches then add up.

    Returns:
        A share from 0 to 1 of the rows of the mini-batch.

    Raises:
        InputError: if a dtype or shape is wrong, or ``denominator`` is not positive.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.correction.trust import rejected_fraction
        >>> keep, live = torch.tensor([False, True, False]), torch.tensor([True, True, False])
        >>> rejected_fraction(keep, live=live, denominator=2.0)
        tensor(0.5000)
    """
    return (live & ~keep).sum() / denominator
