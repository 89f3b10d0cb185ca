"""Policy losses as their papers write them, token by token in float64; a gradient flows to the log-probs."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of


def _columns(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """``[B, T]`` log-ratio, advantage and log-prob; 0 off the mask."""
    columns = (batch.logprob.double() - batch.old_logprob.double(), batch.advantage.double(), batch.logprob.double())
    log_ratio, weight, current = (torch.where(batch.mask, x, 0.0) for x in columns)
    return log_ratio, weight, current


def _cut(ratio: Tensor, weight: Tensor, settings: Settings) -> Tensor:
    """The ratio, clipped where the advantage would push it further beyond its bound."""
    low, high = 1 - number_of(settings, "clip_low"), 1 + number_of(settings, "clip_high")
    above, below = (ratio > high) & (weight > 0), (ratio < low) & (weight < 0)
    return torch.where(above, high, torch.where(below, low, ratio))


def _ppo(batch: Batch, settings: Settings) -> Tensor:
    log_ratio, weight, _ = _columns(batch)
    return -weight * _cut(log_ratio.exp(), weight, settings)


def _uncertain(batch: Batch, settings: Settings) -> Tensor:
    """A mask of trained tokens with an entropy in the upper ``top_entropy_quantile`` of all (arXiv 2506.01939)."""
    if not bool(batch.mask.any()):
        return batch.mask
    entropy = batch.entropy.float()
    return batch.mask & (
        entropy >= torch.quantile(entropy[batch.mask], 1 - number_of(settings, "top_entropy_quantile"))
    )


def _ppo_of_uncertain(batch: Batch, settings: Settings) -> Tensor:
    return torch.where(_uncertain(batch, settings), _ppo(batch, settings), 0.0)


def _dual_clip(batch: Batch, settings: Settings) -> Tensor:
    log_ratio, weight, _ = _columns(batch)
    ratio = _cut(log_ratio.exp(), weight, settings)
    most = number_of(settings, "ceiling")
    return -weight * torch.where((weight < 0) & (ratio > most), most, ratio)


def _cispo(batch: Batch, settings: Settings) -> Tensor:
    log_ratio, weight, current = _columns(batch)
    low, high = 1 - number_of(settings, "clip_low"), 1 + number_of(settings, "clip_high")
    held = torch.tensor(
        [[min(max(x, low), high) for x in row] for row in log_ratio.detach().exp().tolist()], dtype=torch.float64
    )
    return -held * weight * current


def _row_means(tokens: Tensor, batch: Batch, counted: Tensor | None = None) -> Tensor:
    """The mean over the ``counted`` (default: trained) tokens of a row, at each of its tokens; 0 if no token counts."""
    mask = batch.mask if counted is None else counted
    rows = [tokens[b][mask[b]].mean() if bool(mask[b].any()) else tokens[b].sum() * 0 for b in range(batch.rows)]
    return torch.stack(rows).unsqueeze(1).expand(tokens.shape)


def _gspo(batch: Batch, settings: Settings) -> Tensor:
    log_ratio, weight, current = _columns(batch)
    one = current - current.detach()
    ratio = (_row_means(log_ratio.detach(), batch) + one).exp()
    return -weight * _cut(ratio, weight, settings)


def _sequence_ppo(batch: Batch, settings: Settings) -> Tensor:
    """PPO with a whole response as one action: the ratio is the product of the ratios of tokens (arXiv 2402.14740)."""
    log_ratio, weight, _ = _columns(batch)
    ratio = log_ratio.sum(1, keepdim=True).expand(log_ratio.shape).exp()
    return -weight * _cut(ratio, weight, settings)


def _sapo(batch: Batch, settings: Settings) -> Tensor:
    log_ratio, weight, _ = _columns(batch)
    steep = torch.where(weight > 0, number_of(settings, "temperature"), number_of(settings, "negative_temperature"))
    return -weight * 4 / steep / (1 + torch.exp(-steep * (log_ratio.exp() - 1)))


def _gmpo(batch: Batch, settings: Settings, counted: Tensor | None = None) -> Tensor:
    log_ratio, weight, _ = _columns(batch)
    high, low = number_of(settings, "clip_high"), -number_of(settings, "clip_low")
    held = torch.where((weight > 0) & (log_ratio > high), high, log_ratio)
    held = torch.where((weight <= 0) & (log_ratio < low), low, held)
    return -_row_means(held, batch, counted).exp() * _row_means(weight, batch)


def _gmpo_of_uncertain(batch: Batch, settings: Settings) -> Tensor:
    return _gmpo(batch, settings, _uncertain(batch, settings))


def _importance_sampling(batch: Batch, _settings: Settings) -> Tensor:
    log_ratio, weight, _ = _columns(batch)
    return -weight * log_ratio.exp()


def _reinforce(batch: Batch, _settings: Settings) -> Tensor:
    _, weight, current = _columns(batch)
    return -weight * current


def _likelihood(batch: Batch, _settings: Settings) -> Tensor:
    return -torch.where(batch.mask, batch.logprob.double(), 0.0)


def _dynamic_fine_tuning(batch: Batch, settings: Settings) -> Tensor:
    """Negative log-likelihood weighted by the token's probability, which has no gradient; arXiv 2508.05629."""
    tokens = _likelihood(batch, settings)
    return tokens * (-tokens).exp().detach()


#: Algorithms with one ratio per response, and one advantage.
OF_RESPONSES = frozenset({"gspo", "gmpo", "sequence ppo"})

#: Algorithms that select tokens by comparing all tokens of the batch: a part of the batch would select other tokens.
OF_BATCHES = frozenset({"ppo of uncertain tokens", "gmpo of uncertain tokens"})

#: Algorithms that imitate the tokens and read no advantages.
WITHOUT_ADVANTAGES = frozenset({"negative log-likelihood", "dynamic fine-tuning"})

#: Algorithm -> loss per token.
LOSSES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "ppo": _ppo,
    "ppo of uncertain tokens": _ppo_of_uncertain,
    "dual clip": _dual_clip,
    "cispo": _cispo,
    "gspo": _gspo,
    "sequence ppo": _sequence_ppo,
    "sapo": _sapo,
    "gmpo": _gmpo,
    "gmpo of uncertain tokens": _gmpo_of_uncertain,
    "importance sampling": _importance_sampling,
    "reinforce": _reinforce,
    "negative log-likelihood": _likelihood,
    "dynamic fine-tuning": _dynamic_fine_tuning,
}
