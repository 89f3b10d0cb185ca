"""Metrics that preference trainers log: the rewards that a policy and its reference imply, and their accuracy."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.preference_pairs import TIE, are_pairs, mismatched_kl, number, pairs_of


def _ranked(gap: Tensor) -> Tensor:
    """1 where the preferred response has the larger log-ratio; NaN where rounding decides."""
    return torch.where(gap.abs() < TIE, torch.nan, (gap > 0).double())


def _implicit(side: str) -> Callable[[Batch, Settings], Tensor]:
    """A mean over pairs of the rewards that a policy and its reference imply: the log-ratio times beta."""

    def mean(batch: Batch, settings: Settings) -> Tensor:
        if not are_pairs(batch):
            return torch.tensor(torch.nan)
        pairs = pairs_of(batch, settings, reference=settings.get("reference") is not False)
        beta = number(settings, "beta")
        numbers = {
            "chosen": beta * pairs.chosen_ratio,
            "rejected": beta * pairs.rejected_ratio,
            "margin": beta * (pairs.chosen_ratio - pairs.rejected_ratio),
            "accuracy": _ranked(pairs.chosen_ratio - pairs.rejected_ratio),
            "logprob chosen": pairs.chosen,
            "logprob rejected": pairs.rejected,
            "mismatched kl": mismatched_kl(pairs),
        }
        return numbers[side].mean()

    return mean


#: Algorithm with settings -> one number for the batch.
REWARDS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "implicit reward of preferred responses": _implicit("chosen"),
    "implicit reward of other responses": _implicit("rejected"),
    "implicit reward margin": _implicit("margin"),
    "implicit reward accuracy": _implicit("accuracy"),
    "log-prob of preferred responses": _implicit("logprob chosen"),
    "log-prob of other responses": _implicit("logprob rejected"),
    "kl over mismatched prompts": _implicit("mismatched kl"),
    "no reward": lambda _batch, _settings: torch.zeros((), dtype=torch.float64),
}
