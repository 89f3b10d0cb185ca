"""Policy losses that select tokens by a divergence or covariance, or add a penalty, per token."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of

#: A covariance within ``EXACT`` of a bound counts as equal to it; between ``EXACT`` and ``NEAR``, rounding decides.
EXACT, NEAR = 1e-12, 1e-6


def _kept(batch: Batch, settings: Settings, divergence: Tensor) -> Tensor:
    """Minus advantage times log-prob times the ratio, which is clamped to ``ceiling`` and has no gradient.

    The loss is 0 at tokens that moved too far and would move further.
    """
    current, old, weight = batch.logprob.double(), batch.old_logprob.double(), batch.advantage.double()
    ratio = torch.exp(current.detach() - old)
    held = torch.where(ratio > number_of(settings, "ceiling"), number_of(settings, "ceiling"), ratio)
    most = torch.where(weight > 0, number_of(settings, "clip_high"), number_of(settings, "clip_low"))
    away = torch.where(weight > 0, ratio > 1, ratio < 1)
    return torch.where((divergence > most) & away, 0.0, -weight * held * current)


def _dppo_tv(batch: Batch, settings: Settings) -> Tensor | None:
    """DPPO (arXiv 2602.04879) with the total variation between two events: the sampled token, and all others."""
    share, before = batch.logprob.detach().double().exp(), batch.old_logprob.double().exp()
    return _kept(batch, settings, (share - before).abs())


def _dppo_kl(batch: Batch, settings: Settings) -> Tensor | None:
    """DPPO (arXiv 2602.04879) with the KL over two events: the sampled token, and all others.

    None if a probability is 1 or more.
    """
    share, before = batch.logprob.detach().double().exp(), batch.old_logprob.double().exp()
    if bool(((share >= 1) | (before >= 1))[batch.mask].any()):
        return None  # a probability of 1 or more, which no policy produces
    divergence = before * torch.log(before / share) + (1 - before) * torch.log((1 - before) / (1 - share))
    return _kept(batch, settings, divergence.nan_to_num())


def _penalized(batch: Batch, settings: Settings) -> Tensor | None:
    """Minus log-prob times advantage, plus a quadratic penalty on the log-ratio; DRO, arXiv 2405.19107."""
    log_ratio = batch.logprob.double() - batch.old_logprob.double()
    return -(batch.advantage.double() * batch.logprob.double() - number_of(settings, "penalty") / 2 * log_ratio**2)


def covariance(batch: Batch) -> Tensor:
    """Contribution of each trained token to the covariance of log-prob and advantage; without a gradient."""
    current, weight = batch.logprob.detach().double(), batch.advantage.double()
    return (current - current[batch.mask].mean()) * (weight - weight[batch.mask].mean())


def _count(batch: Batch, settings: Settings) -> int:
    return max(1, int(number_of(settings, "share") * int(batch.mask.sum())))


def _kl_cov(batch: Batch, settings: Settings) -> Tensor | None:
    """Minus ratio times advantage, plus a KL penalty at the tokens of largest covariance; arXiv 2505.22617, KL-Cov.

    None if nothing is trained, or if rounding decides which tokens these are.
    """
    if not bool(batch.mask.any()):
        return None
    size = torch.where(batch.mask, covariance(batch), -torch.inf).flatten()
    order, count = size.argsort(descending=True), _count(batch, settings)
    if count < int(batch.mask.sum()) and float(size[order[count - 1]] - size[order[count]]) < 1e-6:
        return None
    chosen = torch.zeros_like(size, dtype=torch.bool).scatter(0, order[:count], value=True).reshape(batch.mask.shape)
    return kl_at_chosen(batch, settings, chosen)


def kl_at_chosen(batch: Batch, settings: Settings, chosen: Tensor) -> Tensor:
    """Minus ratio times advantage, plus penalty times absolute log-ratio at chosen tokens."""
    log_ratio = batch.logprob.double() - batch.old_logprob.double()
    plain = -batch.advantage.double() * log_ratio.exp()
    return plain + torch.where(chosen, number_of(settings, "penalty") * log_ratio.abs(), 0.0)


def _clip_cov(batch: Batch, settings: Settings) -> Tensor | None:
    """PPO's loss without some tokens, which are drawn from the tokens with a covariance between two bounds.

    Source: Clip-Cov, arXiv 2505.22617.

    None if nothing is trained, if there are more such tokens than are drawn, so that the result is random, or if a
    covariance is so close to a bound that rounding decides.
    """
    if not bool(batch.mask.any()):
        return None
    _, bound = _clipped(batch, settings)
    size, edges = covariance(batch), (number_of(settings, "cov_low"), number_of(settings, "cov_high"))
    at, near = (torch.stack([(size - e).abs() < x for e in edges]).any(0) for x in (EXACT, NEAR))
    among = batch.mask & ~bound & ~at & (size > edges[0]) & (size < edges[1])
    if bool((near & ~at & batch.mask & ~bound).any()) or int(among.sum()) > _count(batch, settings):
        return None
    return clip_without_chosen(batch, settings, among)


def clip_without_chosen(batch: Batch, settings: Settings, chosen: Tensor) -> Tensor:
    """PPO's loss, and 0 at chosen tokens whose ratio is not clipped."""
    plain, bound = _clipped(batch, settings)
    return torch.where(chosen & ~bound, 0.0, plain)


def _clipped(batch: Batch, settings: Settings) -> tuple[Tensor, Tensor]:
    """PPO's loss per token, and a mask that is True where the ratio is clipped."""
    ratio, weight = torch.exp(batch.logprob.double() - batch.old_logprob.double()), batch.advantage.double()
    low, high = 1 - number_of(settings, "clip_low"), 1 + number_of(settings, "clip_high")
    bound = (ratio > high) & (weight > 0) | (ratio < low) & (weight < 0)
    return -weight * torch.where((ratio > high) & (weight > 0), high, torch.where(bound, low, ratio)), bound


#: Algorithm -> loss per token, or None if the batch does not determine it.
DIVERGENCES: Mapping[str, Callable[[Batch, Settings], Tensor | None]] = {
    "dppo tv": _dppo_tv,
    "dppo kl": _dppo_kl,
    "quadratic penalty": _penalized,
    "kl-cov": _kl_cov,
    "clip-cov": _clip_cov,
}
