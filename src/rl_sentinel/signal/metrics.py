"""Metrics for the log, over live rows and trained tokens only.

Call them on the whole batch of all ranks: the mean of metrics of its parts is a different number.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rl_sentinel.signal.groups import deviations
from rl_sentinel.signal.kl import k1, k3
from rl_sentinel.signal.reduce import live_rows, row_means, selected
from rl_sentinel.signal.requirements import CLIP, require_span
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate

#: Claims about every function.
CLAIMS = {"masked-slots": "any"}


class Statistics(NamedTuple):
    """Mean, standard deviation (n - 1), minimum and maximum, in the unit of the values, and their number."""

    mean: Float[Tensor, ""]
    deviation: Float[Tensor, ""]
    least: Float[Tensor, ""]
    most: Float[Tensor, ""]
    size: int


class Clipped(NamedTuple):
    """Clipped shares from 0 to 1: ``tokens`` of the trained tokens, ``sequences`` of the live responses.

    A token is judged by its ratio, a response by the geometric mean of its ratios.
    """

    tokens: Float[Tensor, ""]
    sequences: Float[Tensor, ""]


class MeanKl(NamedTuple):
    """Two estimates of one KL, in nats per token: k1 may be negative, k3 never is."""

    k1: Float[Tensor, ""]
    k3: Float[Tensor, ""]


@validate(rows=True, finite="values")
def statistics(values: Float[Tensor, "*S"], *, mask: Mask) -> Statistics:
    r"""Mean, standard deviation, minimum and maximum, as of rewards of live rows or entropies of trained tokens.

    .. math:: \bar x = \frac1n \sum x, \quad s^2 = \frac{1}{n - 1} \sum (x - \bar x)^2

    Args:
        values: one number per row ``[B]`` or per token, in any unit.
        mask: True where a number counts: live rows, trained tokens; other values are ignored.

    Returns:
        The four numbers and the count; all 0 if nothing counts. The deviation of a single number is 0.

    Raises:
        InputError: if a number that counts is not finite, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import statistics
        >>> found = statistics(torch.tensor([1.0, 3.0, 99.0]), mask=torch.tensor([True, True, False]))
        >>> found.mean, found.most, found.size
        (tensor(2.), tensor(3.), 2)
    """
    where = trained(mask)
    kept = values.detach()[where]
    if len(kept) == 0:
        nothing = torch.zeros((), dtype=values.dtype, device=values.device)
        return Statistics(nothing, nothing, nothing, nothing, 0)
    apart = kept.std() if len(kept) > 1 else torch.zeros_like(kept[0])
    return Statistics(kept.mean(), apart, kept.min(), kept.max(), len(kept))


@validate(rows=True)
def share(fact: Bool[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, ""]:
    """The share for which a fact holds: truncated responses among live ones, kept tokens among trained ones.

    Args:
        fact: one fact per row ``[B]`` or per token.
        mask: True where the fact counts.

    Returns:
        A share from 0 to 1; 0 if nothing counts.

    Raises:
        InputError: if a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import share
        >>> share(torch.tensor([True, False, True]), mask=torch.tensor([True, True, False]))
        tensor(0.5000)
    """
    where = trained(mask)
    return (fact & where).sum() / where.sum().clamp(min=1)


@validate(finite="logprob old_logprob advantage", clip_low=CLIP, clip_high=CLIP)
def clip_fraction(  # noqa: PLR0913 - three columns, their mask and the two clips
    logprob: Float[Tensor, "*S"],
    old_logprob: Float[Tensor, "*S"],
    advantage: Float[Tensor, "*S"],
    *,
    mask: Mask,
    clip_low: float,
    clip_high: float,
) -> Clipped:
    r"""The share of trained tokens and live responses whose ratio is clipped so that they have no gradient.

    .. math:: \rho > 1 + \epsilon_h \text{ and } A > 0, \quad \text{or } \rho < 1 - \epsilon_l \text{ and } A < 0

    Args:
        logprob: log-probs of the current policy, in nats.
        old_logprob: log-probs of the policy before the update, in nats.
        advantage: advantage per token, in reward units or standard deviations; for a response, their mean counts.
        mask: True on trained tokens; other values are ignored.
        clip_low: the ratio is clipped from below at 1 - ``clip_low``.
        clip_high: the ratio is clipped from above at 1 + ``clip_high``.

    Returns:
        The share of trained tokens that are clipped, and of live responses. A response's ratio is the geometric mean of
        its tokens' ratios; each response counts once.

    Raises:
        InputError: if a number on the mask is not finite, a dtype or shape is wrong, or a clip is not from 0 to 10,000.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import clip_fraction
        >>> new, old = torch.tensor([[0.5, 0.0]]), torch.zeros(1, 2)
        >>> clip_fraction(new, old, torch.ones(1, 2), mask=torch.ones(1, 2).bool(), clip_low=0.2, clip_high=0.2)
        Clipped(tokens=tensor(0.5000), sequences=tensor(1.))
    """
    apart, gain = selected(logprob - old_logprob, mask=mask).detach(), selected(advantage, mask=mask)
    rows = row_means(apart, mask=mask), row_means(gain, mask=mask)

    def cut(log_ratio: Tensor, weight: Tensor) -> Tensor:
        ratio = log_ratio.exp()
        return ((ratio > 1 + clip_high) & (weight > 0)) | ((ratio < 1 - clip_low) & (weight < 0))

    return Clipped(share(cut(apart, gain), mask=mask), share(cut(*rows), mask=live_rows(mask)))


@validate(finite="logprob other_logprob")
def mean_kl(logprob: Float[Tensor, "*S"], other_logprob: Float[Tensor, "*S"], *, mask: Mask) -> MeanKl:
    r"""The KL of the sampling policy to another policy, as the mean over trained tokens.

    Args:
        logprob: log-probs of the policy that sampled, in nats.
        other_logprob: log-probs of the other policy, in nats: the reference, or the policy that is trained.
        mask: True on trained tokens; other values are ignored.

    Returns:
        The means of the estimators k1 and k3, in nats per token; 0 if nothing is trained.

    Raises:
        InputError: if a log-prob on the mask is not finite, or a dtype or shape is wrong.

    Source:
        The estimators are those of ``signal.kl``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import mean_kl
        >>> mean_kl(torch.tensor([[-1.0]]), torch.tensor([[-1.5]]), mask=torch.tensor([[True]]))
        MeanKl(k1=tensor(0.5000), k3=tensor(0.1065))
    """
    count = trained(mask).sum().clamp(min=1)
    return MeanKl(*(_mean(f(logprob, other_logprob, mask=mask).detach(), count) for f in (k1, k3)))


@validate(rows=True, finite="weight")
def effective_sample_size(weight: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, ""]:
    r"""The effective sample size of importance weights, as a share of the samples.

    .. math:: \frac{(\sum w)^2}{n \sum w^2}

    Args:
        weight: ratios per token or per response ``[B]``, 0 or more; of any scale.
        mask: True on trained tokens, or on rows with one; other values are ignored.

    Returns:
        A share from 1 / n to 1 (for equal weights); 0 if nothing counts or all weights are 0.

    Raises:
        InputError: if a weight that counts is negative or not finite, or a dtype or shape is wrong.

    Source:
        Kong, A Note on Importance Sampling Using Standardized Weights (1992), divided by the count.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import effective_sample_size
        >>> effective_sample_size(torch.tensor([1.0, 0.0, 7.0]), mask=torch.tensor([True, True, False]))
        tensor(0.5000)
    """
    where = trained(mask)
    why = "it is a ratio of two probabilities"
    require_span("weight", weight, where=where, span=(0.0, torch.inf), why=why)
    kept = selected(weight, mask=where).detach()
    kept = kept / torch.where(kept.max() > 0, kept.max(), torch.ones_like(kept.max())) if kept.numel() else kept
    kept = kept.double()  # a sum may overflow the dtype
    squares = where.sum() * kept.square().sum()
    return (kept.sum().square() / torch.where(squares > 0, squares, torch.ones_like(squares))).to(weight.dtype)


@validate(finite="reward")
def dead_group_fraction(
    reward: Float[Tensor, " B"], *, group: Int[Tensor, " B"], live: Bool[Tensor, " B"]
) -> Float[Tensor, ""]:
    """The share of prompts whose live responses all have the same reward, so that group advantages are 0.

    Args:
        reward: outcome per response, in reward units, as the estimator compares it.
        group: prompt id per response; any integers, in any order.
        live: True where the response has at least one trained token.

    Returns:
        The share among prompts with a live response; a prompt with one live response counts. 0 if no row is live.

    Raises:
        InputError: if a reward is not finite on a live row, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import dead_group_fraction
        >>> reward, group = torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([5, 5, 6, 6])
        >>> dead_group_fraction(reward, group=group, live=torch.ones(4).bool())
        tensor(0.5000)
    """
    same = deviations(reward, group=group, live=live, biased=True) == 0
    prompts, dead = (len(torch.unique(group.long()[rows])) for rows in (live, live & same))
    return reward.new_full((), dead / max(prompts, 1))


@validate(finite="value returns")
def explained_variance(value: Float[Tensor, "*S"], returns: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, ""]:
    r"""The share of the returns' variance that the critic explains, over trained tokens.

    .. math:: 1 - \frac{\operatorname{Var}(R - V)}{\operatorname{Var}(R)}

    Args:
        value: the critic's values, in reward units.
        returns: the targets of the values, in reward units.
        mask: True on trained tokens; other values are ignored.

    Returns:
        1 for values that are right up to a constant, 0 for constant values, below 0 for worse values; 0 if the
        returns do not vary, or no token is trained.

    Raises:
        InputError: if a number on the mask is not finite, or a dtype or shape is wrong.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.metrics import explained_variance
        >>> value, mask = torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[True, True, False]])
        >>> explained_variance(value, value + 1, mask=mask)
        tensor(1.)
    """
    where = trained(mask)
    aim, missed = returns.detach()[where], (returns - value).detach()[where]
    if len(aim) == 0:
        return torch.zeros((), dtype=returns.dtype, device=returns.device)
    whole, left = (torch.where((x == x[0]).all(), 0.0, x.var(correction=0)) for x in (aim, missed))
    return torch.where(whole > 0, 1 - left / torch.where(whole > 0, whole, torch.ones_like(whole)), 0.0)


def _mean(values: Tensor, count: Tensor) -> Tensor:
    """The mean, also where the sum overflows the dtype."""
    return (values.sum(dtype=torch.float64) / count).to(values.dtype)
