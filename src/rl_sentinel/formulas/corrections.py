"""Formulas of rollout correction (weights, bounds, rejection), in plain floats, token by token."""

from collections.abc import Callable, Mapping
from math import exp, isnan, log, nan

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of

#: Estimator -> estimate of KL(sampler || trained policy) from the log-ratio of the trained policy to the sampler.
_ESTIMATES: Mapping[str, Callable[[float], float]] = {
    "k1": lambda d: -d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: exp(d) - 1 - d,
}

_OVER: Mapping[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "mean": lambda x: sum(x) / len(x),
    "max": max,
}


#: A number closer than this to a bound, but not equal to it, may be on either side by rounding.
NEAR = 1e-5


def _ratios(batch: Batch, of: str) -> list[dict[int, float]]:
    """For each row, trained position -> log-ratio of the policy to ``of``."""
    other, mask = getattr(batch, of).tolist(), batch.mask.tolist()
    logprob = batch.logprob.tolist()
    return [{t: logprob[b][t] - other[b][t] for t in range(batch.width) if mask[b][t]} for b in range(batch.rows)]


def _of_tokens(batch: Batch, of: str, value: Callable[[float], float]) -> Tensor:
    found = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b, row in enumerate(_ratios(batch, of)):
        for t, d in row.items():
            found[b, t] = value(d)
    return found


def _of_rows(batch: Batch, of: str, value: Callable[[list[float]], float]) -> Tensor:
    rows = [list(row.values()) for row in _ratios(batch, of)]
    return torch.tensor([value(row) if row else 0.0 for row in rows], dtype=torch.float64)


#: Level of a weight (token, sequence, geometric mean of a sequence) -> function that computes the weights.
_LEVELS: Mapping[str, Callable[[Batch], Tensor]] = {
    "token": lambda batch: _of_tokens(batch, "rollout_logprob", exp),
    "sequence": lambda batch: _of_rows(batch, "rollout_logprob", lambda row: exp(sum(row))),
    "geometric": lambda batch: _of_rows(batch, "rollout_logprob", lambda row: exp(sum(row) / len(row))),
}


def _bounded(value: Callable[[float, Settings], float]) -> Callable[[Batch, Settings], Tensor]:
    """Make the formula that bounds each weight separately by ``value``; it gives 0 at untrained tokens."""

    def found(batch: Batch, settings: Settings) -> Tensor:
        weights = _LEVELS[str(settings["level"])](batch)
        kept = batch.mask if weights.dim() == 2 else batch.live
        cells = zip(weights.flatten().tolist(), kept.flatten().tolist(), strict=True)
        bounded = [value(w, settings) if k else 0.0 for w, k in cells]
        return torch.tensor(bounded, dtype=torch.float64).view(weights.shape)

    return found


def _nan_near(x: float, *bounds: float) -> float:
    """NaN if rounding decides on which side of a bound a number is: it is close, but not equal; otherwise 1."""
    return nan if any(0 < abs(x - b) < NEAR for b in bounds) else 1.0


def _masked(w: float, settings: Settings) -> float:
    return w * _inside(w, settings)


def _self_normalized(batch: Batch, settings: Settings) -> Tensor:
    weights = _LEVELS[str(settings["level"])](batch)
    count = int((batch.mask if weights.dim() == 2 else batch.live).sum())
    return weights / (float(weights.sum()) / count) if count else weights


def _inside(x: float, settings: Settings) -> float:
    low, high = number_of(settings, "low"), number_of(settings, "high")
    return float(low <= x <= high) * _nan_near(x, low, high)


def _tokens_kept(batch: Batch, settings: Settings) -> Tensor:
    estimate = _ESTIMATES[str(settings["estimator"])]
    return _of_tokens(batch, "rollout_logprob", lambda d: _inside(estimate(d), settings))


def _rows_kept(batch: Batch, settings: Settings) -> Tensor:
    estimate, over = _ESTIMATES[str(settings["estimator"])], _OVER[str(settings["over"])]
    return _of_rows(batch, "rollout_logprob", lambda row: _inside(over([estimate(d) for d in row]), settings))


def _vetoed(batch: Batch, settings: Settings) -> Tensor:
    floor = log(number_of(settings, "floor"))

    def kept(row: list[float]) -> float:
        return float(min(row) >= floor) * _nan_near(min(row), floor)

    return _of_rows(batch, "rollout_logprob", kept)


def _off_policy_sequences_kept(batch: Batch, settings: Settings, of: str = "old_logprob") -> Tensor:
    """``[B]``, 1 if a row is kept, by its total advantage and its mean log-ratio to ``of``; NaN near the threshold.

    With the setting ``per_response``, the reward of the row takes the place of its total advantage.
    """
    found = torch.zeros(batch.rows, dtype=torch.float64)
    for b, row in enumerate(_ratios(batch, of)):
        if row:
            advantage = [float(batch.advantage[b, t]) for t in row]
            bad = (float(batch.reward[b]) if settings.get("per_response") else sum(advantage)) < 0
            away, most = -sum(row.values()) / len(row), number_of(settings, "threshold")
            found[b] = float(away <= most) * _nan_near(away, most) if bad else 1.0
    return found


def _kept_outcomes(batch: Batch, settings: Settings) -> Tensor:
    """The outcome of each kept row minus the mean over the kept rows of its prompt; 0 for a dropped or lone row.

    With the setting ``tokens``, a row without a kept token is dropped too. Both decisions use all trained tokens. All
    NaN if a number is near a bound.
    """
    kept = _rows_kept(batch, settings)
    if settings.get("tokens"):
        tokens = _tokens_kept(batch, settings)
        kept = torch.where(tokens.isnan().any(1), nan, kept * tokens.amax(1))
    if bool(kept.isnan().any()):
        return torch.full_like(kept, nan)
    found = torch.zeros_like(kept)
    for b in torch.nonzero(kept).squeeze(1).tolist():
        others = batch.reward[(kept > 0) & (batch.group == batch.group[b])].double()
        found[b] = batch.reward[b] - others.mean() if len(others) > 1 else 0.0
    return found


def _rejected(batch: Batch, settings: Settings) -> Tensor:
    kept, live = _off_policy_sequences_kept(batch, settings), int(batch.live.sum())
    return (live - kept.sum()) / max(1, live)


def _second_moment_kept(batch: Batch, settings: Settings) -> Tensor:
    """``[B, T]``, 1 at tokens up to the largest absolute log-ratio for which the mean square meets the threshold.

    All NaN if rounding decides.
    """
    every = sorted(abs(d) for row in _ratios(batch, "old_logprob") for d in row.values())
    bound, most = -1.0, number_of(settings, "threshold")
    for x in every:
        near = [y * y for y in every if y <= x]
        if sum(near) / len(near) <= most:
            bound = x
        if isnan(_nan_near(sum(near) / len(near), most)):
            return torch.full(batch.mask.shape, nan, dtype=torch.float64)
    return _of_tokens(batch, "old_logprob", lambda d: float(abs(d) <= bound))


#: Algorithm -> weights or decisions (1 for kept, 0 for dropped), per row or per token.
CORRECTIONS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "log ratios": lambda batch, _settings: _of_tokens(batch, "rollout_logprob", float),
    "token weights": lambda batch, _settings: _LEVELS["token"](batch),
    "sequence weights": lambda batch, _settings: _LEVELS["sequence"](batch),
    "geometric weights": lambda batch, _settings: _LEVELS["geometric"](batch),
    "truncated": _bounded(lambda w, settings: min(w, number_of(settings, "high"))),
    "clipped weights": _bounded(lambda w, s: sorted((number_of(s, "low"), w, number_of(s, "high")))[1]),
    "masked": _bounded(_masked),
    "self normalized": _self_normalized,
    "tokens kept": _tokens_kept,
    "rows kept": _rows_kept,
    "vetoed": _vetoed,
    "centered outcomes of kept tokens": _kept_outcomes,
    "off policy sequences kept": _off_policy_sequences_kept,
    "sequences near the sampler kept": lambda batch, s: _off_policy_sequences_kept(batch, s, "rollout_logprob"),
    "second moment kept": _second_moment_kept,
}

#: Algorithm -> one number for the batch.
SHARES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"rejected fraction": _rejected}
