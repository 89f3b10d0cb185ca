"""KL estimators per token, rewards with a KL penalty, and adaptive KL coefficients."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]


def _log_ratio(batch: Batch) -> Tensor:
    """``[B, T]`` log-ratio of the policy to the reference, in nats."""
    return batch.logprob.double() - batch.ref_logprob.double()


def _k3(batch: Batch) -> Named:
    other = -_log_ratio(batch)
    value = torch.exp(other) - other - 1
    return {"k3": value, "k3 cut at 10": torch.where(value > 10, 10.0, value)}


#: Estimator -> values per token, by reading. John Schulman, Approximating KL Divergence (2020).
KL: Mapping[str, Callable[[Batch], Named]] = {
    "k1": lambda batch: {"k1": _log_ratio(batch)},
    "abs": lambda batch: {"absolute k1": _log_ratio(batch).abs()},
    "k2": lambda batch: {"k2": _log_ratio(batch) ** 2 / 2},
    "k3": _k3,
}


def _weight(settings: Settings) -> float:
    return number_of(settings, "kl_coef")


def _less(kind: str) -> Callable[[Batch, Settings], Named]:
    """Make the formula: token rewards, with the outcome at the last token, minus the weighted KL at each trained token.

    Ziegler et al., Fine-Tuning Language Models from Human Preferences (arXiv 1909.08593), equation 2.
    """

    def rewards(batch: Batch, settings: Settings) -> Named:
        found: Named = {}
        for estimator, kl in KL[kind](batch).items():
            for where, places in (("response", batch.valid), ("trained", batch.mask)):
                shaped = batch.token_reward.double().clone()
                for b in range(batch.rows):
                    ends = [t for t in range(batch.width) if bool(places[b, t])]
                    if ends:
                        shaped[b, ends[-1]] += float(batch.reward[b])
                    for t in range(batch.width):
                        shaped[b, t] -= _weight(settings) * float(kl[b, t]) if bool(batch.mask[b, t]) else 0.0
                found[f"less {estimator}, the outcome at the last {where} token"] = shaped
        return found

    return rewards


def _outcomes_less(kind: str) -> Callable[[Batch, Settings], Named]:
    """Make the formula: at every token, the reward of the row minus its weighted KL.

    The reward is the outcome plus the token rewards; the KL is the sum or the mean over trained tokens.
    """

    def rewards(batch: Batch, settings: Settings) -> Named:
        found: Named = {}
        for estimator, kl in KL[kind](batch).items():
            trained = torch.where(batch.mask, kl, 0.0).sum(1)
            outcome = batch.reward.double() + torch.where(batch.valid, batch.token_reward.double(), 0.0).sum(1)
            for how, count in (("summed", torch.ones_like(trained)), ("mean", batch.mask.sum(1).clamp(min=1))):
                row = outcome - _weight(settings) * trained / count
                found[f"less {estimator}, {how} over the row"] = row.unsqueeze(1).expand_as(kl)
        return found

    return rewards


#: Shaped outcome -> the row's value at each of its tokens, by reading.
SHAPED_OUTCOMES: Mapping[str, Callable[[Batch, Settings], Named]] = {f"less {n}": _outcomes_less(n) for n in KL}

#: Shaped reward -> values per token, by reading.
SHAPED: Mapping[str, Callable[[Batch, Settings], Named]] = {f"less {kind}": _less(kind) for kind in KL}


def _measured(kind: str, batch: Batch) -> Mapping[str, float]:
    """The accepted definitions of the KL of a batch, by name."""
    kl = KL[kind](batch)[next(iter(KL[kind](batch)))]
    rows = [[float(kl[b, t]) for t in range(batch.width) if bool(batch.mask[b, t])] for b in range(batch.rows)]
    means = [sum(row) / max(1, len(row)) for row in rows]
    every = [x for row in rows for x in row]
    live = max(1, sum(bool(row) for row in rows))
    return {
        "mean over tokens": sum(every) / max(1, len(every)),
        "mean of row means, all rows": sum(means) / len(rows),
        "mean of row means, live rows": sum(means) / live,
        "mean of row sums, all rows": sum(every) / len(rows),
        "mean of row sums, live rows": sum(every) / live,
    }


def _fixed(_kind: str, _batch: Batch, settings: Settings) -> Named:
    return {"as it was": torch.tensor(_weight(settings), dtype=torch.float64)}


def _adaptive(kind: str, batch: Batch, settings: Settings) -> Named:
    """The KL coefficient after a step: higher if the KL is above its target, lower if below; arXiv 1909.08593, 2.2."""
    target, horizon = float(settings["target_kl"] or 1), float(settings["horizon"] or 1)
    found: Named = {}
    for name, kl in _measured(kind, batch).items():
        error = min(max((kl - target) / target, -0.2), 0.2)
        after = _weight(settings) * (1 + error * batch.rows / horizon)
        found[f"by the {name}"] = torch.tensor(after, dtype=torch.float64)
    return found


#: Controller -> the weight of the KL after one batch, by reading.
CONTROLLERS: Mapping[str, Callable[[str, Batch, Settings], Named]] = {"fixed": _fixed, "adaptive": _adaptive}
