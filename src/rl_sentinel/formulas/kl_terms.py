"""Gradients and uses of KL estimators: losses from a KL, the KL in a reward, the update of its coefficient."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of
from rl_sentinel.formulas.kl_tokens import KL, Named


def _log_ratio(batch: Batch) -> Tensor:
    """Log-ratio of the policy to the reference; 0 off the mask, where values are arbitrary."""
    return torch.where(batch.mask, batch.logprob.double() - batch.ref_logprob.double(), 0.0)


def _ratio(batch: Batch) -> Tensor:
    return torch.where(batch.mask, batch.logprob.double() - batch.old_logprob.double(), 0.0).exp()


def _k3(d: Tensor) -> Tensor:
    return torch.exp(-d) - 1 + d


def _with_slope(value: Tensor, slope: Tensor, batch: Batch) -> Tensor:
    """A tensor with these values, whose gradient with respect to the log-probs is ``slope``."""
    return value.detach() + slope.detach() * (batch.logprob.double() - batch.logprob.double().detach())


def _shaped(batch: Batch, settings: Settings) -> Tensor:
    found, raw = torch.zeros(batch.mask.shape).double(), _log_ratio(batch)
    for b in range(batch.rows):
        trained = torch.nonzero(batch.mask[b]).flatten().tolist()
        for t in trained:
            outcome = float(batch.reward[b]) if t == trained[-1] else 0.0
            found[b, t] = (
                float(batch.token_reward[b, t]) + outcome - number_of(settings, "coefficient") * float(raw[b, t])
            )
    return found


def _less_k1(batch: Batch, settings: Settings) -> Tensor:
    """The outcome minus the weighted log-ratio of the old policy to the reference, at each trained token."""
    raw = torch.where(batch.mask, batch.old_logprob.double() - batch.ref_logprob.double(), 0.0)
    return torch.where(batch.mask, batch.reward.double().unsqueeze(1) - number_of(settings, "coefficient") * raw, 0.0)


def _steered(batch: Batch, settings: Settings) -> Tensor:
    count, live = int(batch.mask.sum()), int(batch.live.sum())
    mean = float(_log_ratio(batch).sum()) / max(1, count)
    error = sorted((-0.2, mean / number_of(settings, "target") - 1, 0.2))[1]
    moved = number_of(settings, "coefficient") * (1 + error * live / number_of(settings, "horizon"))
    return torch.tensor(moved, dtype=torch.float64)


def importance_weighted(estimate: Tensor, batch: Batch) -> Tensor:
    """``[B, T]`` KL estimates, each times the ratio of the policy to the old policy; 0 off the mask."""
    return _ratio(batch) * torch.where(batch.mask, estimate, 0.0)


def _weighted(batch: Batch) -> Tensor:
    return importance_weighted(_k3(_log_ratio(batch)), batch)


#: Algorithm -> values per token.
KL_USES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "k1 in the reward": _shaped,
    "outcome less k1": _less_k1,
    "weighted k3": lambda batch, _settings: _weighted(batch),
}

#: Algorithm -> one number for the batch.
STEERS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"k1 steers": _steered}

#: Kind -> a KL per token with a single reading, whose gradient with respect to the log-probs is compared too.
_SLOPED: Mapping[str, Callable[[Batch], Tensor]] = {
    "absolute": lambda batch: _log_ratio(batch).abs(),
    "absolute_plus": lambda batch: _with_slope(_log_ratio(batch).abs(), _log_ratio(batch), batch),
    "k1_plus": lambda batch: _with_slope(_log_ratio(batch), _log_ratio(batch), batch),
    "k3_plus": lambda batch: _with_slope(_k3(_log_ratio(batch)), _log_ratio(batch), batch),
    "weighted k3": _weighted,
}


def _times_coefficient(kl: Callable[[Batch], Named]) -> Callable[[Batch, Settings], Named]:
    return lambda batch, settings: {
        n: number_of(settings, "coefficient") * torch.where(batch.mask, x, 0.0) for n, x in kl(batch).items()
    }


def _with_one_reading(kl: Callable[[Batch], Tensor]) -> Callable[[Batch], Named]:
    return lambda batch: {"": kl(batch)}


#: Algorithm -> loss per token, by reading.
KL_LOSSES: Mapping[str, Callable[[Batch, Settings], Named]] = {
    f"{name} as a loss": _times_coefficient(kl)
    for name, kl in {
        **{k: KL[k] for k in ("k1", "k2", "k3")},
        **{k: _with_one_reading(f) for k, f in _SLOPED.items()},
    }.items()
}
