"""Metrics that preference trainers log: the rewards that a policy and its reference imply, and their accuracy."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.preference_pairs import TIE, are_pairs, mismatched_kl, number, pairs_of


def _ranked(gap: Tensor) -> Tensor:
    """1 where the preferred response has the larger log-ratio, else 0; NaN where rounding decides."""
    return torch.where(gap.abs() < TIE, torch.nan, (gap > 0).double())


def _pair_mean(name: str) -> Callable[[Batch, Settings], Tensor]:
    """Make the formula: the mean over pairs of the named number.

    An implicit reward is beta times the log-ratio to the reference. NaN if the rows are not pairs.
    """

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
        return numbers[name].mean()

    return mean


#: Algorithm -> one number for the batch.
REWARDS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "implicit reward of preferred responses": _pair_mean("chosen"),
    "implicit reward of other responses": _pair_mean("rejected"),
    "implicit reward margin": _pair_mean("margin"),
    "implicit reward accuracy": _pair_mean("accuracy"),
    "log-prob of preferred responses": _pair_mean("logprob chosen"),
    "log-prob of other responses": _pair_mean("logprob rejected"),
    "kl over mismatched prompts": _pair_mean("mismatched kl"),
    "no reward": lambda _batch, _settings: torch.zeros((), dtype=torch.float64),
}
