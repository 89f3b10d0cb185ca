"""Token selection by the covariance of log-prob and advantage over a mini-batch, for Clip-Cov and KL-Cov."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.requirements import EXTENDED, SHARE
from rl_sentinel.signal.segments import Mask, trained
from rl_sentinel.signal.validation import validate


@validate(explain="logprob advantage")
def covariances(logprob: Float[Tensor, "*S"], advantage: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    r"""The contribution of each trained token to the covariance of log-prob and advantage.

    .. math:: c_t = \left(\log \pi_t - \overline{\log \pi}\right) \left(A_t - \bar A\right)

    Args:
        logprob: log-probs of the policy, in nats; no gradient is taken.
        advantage: advantage per token, in reward units or standard deviations.
        mask: True on trained tokens of the whole mini-batch; both means are over these tokens.

    Returns:
        One number per token, in nats times the unit of the advantage; exactly 0 off the mask.

    Raises:
        InputError: if a number on the mask is not finite, or a dtype or shape is wrong.

    Source:
        The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models, arXiv 2505.22617.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.covariance import covariances
        >>> covariances(torch.tensor([[-1.0, -3.0]]), torch.tensor([[1.0, 0.0]]), mask=torch.ones(1, 2).bool())
        tensor([[0.5000, 0.5000]])
    """
    where = trained(mask)
    count = where.sum().clamp(min=1)
    apart = [torch.where(where, x.detach(), torch.zeros_like(x)) for x in (logprob, advantage)]
    about = [
        torch.where(where, x - (x.sum(dtype=torch.float64) / count).to(x.dtype), torch.zeros_like(x)) for x in apart
    ]
    return about[0] * about[1]


@validate(finite="covariance", share=SHARE)
def largest(covariance: Float[Tensor, "*S"], *, mask: Mask, share: float) -> Bool[Tensor, "*S"]:
    """Select a share of the trained tokens, those of largest covariance; at least one if any is trained.

    Args:
        covariance: the contribution of each token to the covariance of the whole mini-batch.
        mask: True on trained tokens.
        share: the fraction of trained tokens to select, above 0 and at most 1.

    Returns:
        True at the chosen tokens. Tokens with the same covariance as the last chosen token are chosen too, so
        that the order of rows has no effect.

    Raises:
        InputError: if a covariance on the mask is not finite, a dtype or shape is wrong, or ``share`` is not above 0
            and at most 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.covariance import largest
        >>> largest(torch.tensor([[0.1, 0.7, 0.3]]), mask=torch.ones(1, 3).bool(), share=0.4)
        tensor([[False,  True, False]])
    """
    where = trained(mask)
    count = min(_count(where, share), int(where.sum()))
    if count == 0:
        return torch.zeros_like(where)
    least = torch.topk(covariance[where], count).values[-1]
    return where & (covariance >= least)


@validate(finite="covariance", low=EXTENDED, high=EXTENDED, share=SHARE)
def drawn_between(  # noqa: PLR0913 - a column, its mask, two bounds, a share and a generator
    covariance: Float[Tensor, "*S"],
    *,
    mask: Mask,
    low: float,
    high: float,
    share: float,
    generator: torch.Generator | None,
) -> Bool[Tensor, "*S"]:
    """Draw trained tokens at random among those whose covariance is between two bounds.

    Args:
        covariance: the contribution of each token to the covariance of the whole mini-batch.
        mask: True on trained tokens.
        low: the covariance must be above it.
        high: the covariance must be below it.
        share: the fraction of all trained tokens to draw (at least one token), above 0 and at most 1; if fewer are
            between the bounds, all of them are drawn.
        generator: the source of randomness; None for torch's default generator.

    Returns:
        True at the drawn tokens.

    Raises:
        InputError: if a covariance on the mask is not finite, a dtype or shape is wrong, ``share`` is not above 0 and
            at most 1, or ``low`` is not below ``high``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.covariance import drawn_between
        >>> drawn_between(torch.tensor([[0.1, 0.7, 0.3]]), mask=torch.ones(1, 3).bool(), low=0.2, high=0.5,
        ...               share=1.0, generator=None)
        tensor([[False, False,  True]])
    """
    if not low < high:
        raise InputError(f"low is {low}, expected less than high ({high})")
    where = trained(mask)
    among = torch.nonzero((where & (covariance > low) & (covariance < high)).flatten()).squeeze(1)
    place = among.device if generator is None else generator.device
    order = torch.randperm(len(among), generator=generator, device=place).to(among.device)
    drawn = torch.zeros(where.numel(), dtype=torch.bool, device=where.device)
    return drawn.index_fill(0, among[order[: _count(where, share)]], value=True).view(where.shape)


def _count(mask: Tensor, share: float) -> int:
    return max(1, int(share * int(mask.sum()) + 1e-9))  # 0.29 * 100 is 28.999999999999996 in floating point
