"""Perplexities, their gap between two policies, and chi-square divergences, per row or token."""

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.formulas.allowed import LOGPROBS

#: A log-ratio may be clipped at this many nats before its exponential is taken.
CUTS: Mapping[str, float] = {"": float("inf"), " cut at 20": 20.0}

#: First word of a quantity of one policy -> its formula, a function of the mean log-prob of a row's trained tokens.
OF_ONE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "perplexity": lambda mean: (-mean).exp(),
    "log_perplexity": lambda mean: -mean,
}

#: First word of a quantity of two policies -> its formula, a function of the mean log-ratio of the first to the second.
OF_TWO: Mapping[str, Callable[[Tensor], Tensor]] = {
    "log_perplexity_gap": lambda mean: -mean,
    "perplexity_ratio": lambda mean: (-mean).exp(),
}


def measures_rows(first: str) -> bool:
    """Whether a quantity is one number for each row that has a trained token."""
    return first in (*OF_ONE, *OF_TWO, "row_chi_square")


def policies_needed(first: str) -> int:
    """The number of policies whose log-probs the quantity needs; 0 for quantities that are not defined here."""
    return 1 if first in OF_ONE else 2 if measures_rows(first) or first == "chi_square" else 0


def of_rows(first: str, batch: Batch, reads: Iterable[str]) -> dict[str, Tensor]:
    """``[B]`` values by policy, or by ordered pair; only the trained tokens of a row count.

    A ``row_chi_square`` is the squared ratio of the row minus 1. Its mean is the chi-square divergence of the first
    policy against the second, if the second drew the samples.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> old = torch.tensor([[-1.0, -3.0]])
        >>> batch = batch_of(torch.ones(1, 2, dtype=torch.bool), old_logprob=old)
        >>> of_rows("log_perplexity", batch, ["old_logprob"])["log_perplexity of old_logprob"].item()
        2.0
    """
    counts = batch.mask.sum(1).clamp(min=1)
    sums = {n: torch.where(batch.mask, getattr(batch, n), 0.0).sum(1) for n in sorted(LOGPROBS & set(reads))}
    if first in OF_ONE:
        return {f"{first} of {n}": OF_ONE[first](x / counts) for n, x in sums.items()}
    found: dict[str, Tensor] = {}
    for one, other in permutations(sums, 2):
        log_ratio = sums[one] - sums[other]
        if first in OF_TWO:
            found[f"{first} of {one} against {other}"] = OF_TWO[first](log_ratio / counts)
        else:
            found |= _chi_squares(f"{first} of {one} against {other}", log_ratio)
    return found


def of_tokens(batch: Batch, reads: Iterable[str]) -> dict[str, Tensor]:
    """``[B, T]`` squared ratios of two policies, minus 1, by ordered pair."""
    found: dict[str, Tensor] = {}
    for one, other in permutations(sorted(LOGPROBS & set(reads)), 2):
        found |= _chi_squares(f"chi_square of {one} against {other}", getattr(batch, one) - getattr(batch, other))
    return found


def _chi_squares(name: str, log_ratio: Tensor) -> dict[str, Tensor]:
    return {f"{name}{cut}": (2 * log_ratio.clamp(-most, most)).exp() - 1 for cut, most in CUTS.items()}
