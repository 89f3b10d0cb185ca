"""Accepted definitions of logged quantities, recomputed from the raw batch in float64."""

from collections.abc import Callable, Mapping
from itertools import permutations

import torch
from torch import Tensor

from rl_sentinel.cases.allowed import LOGPROBS, kind
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Settings

#: Estimators of a KL from the log-ratio ``d`` of the sampling policy to the other one, in nats.
KL: Mapping[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: d,
    "abs": lambda d: d.abs(),
    "k2": lambda d: d.square() / 2,
    "k3": lambda d: torch.expm1(-d) + d,
    "k3 cut at 10": lambda d: (torch.expm1(-d) + d).clamp(-10, 10),
}

#: Row quantities by the first word of their name.
ROWS: Mapping[str, Mapping[str, Callable[[Batch], Tensor]]] = {
    "reward": {
        "outcome reward": lambda b: b.reward,
        "outcome and token rewards": lambda b: b.reward + torch.where(b.valid, b.token_reward, 0).sum(1),
        "outcome and trained token rewards": lambda b: b.reward + torch.where(b.mask, b.token_reward, 0).sum(1),
    },
    "length": {"tokens": lambda b: b.length, "trained tokens": lambda b: b.mask.sum(1)},
    "response_length": {"tokens": lambda b: b.length, "trained tokens": lambda b: b.mask.sum(1)},
}

#: Columns that are logged as they stand, by the first word of the quantity.
TOKENS = {"advantage": "advantage", "returns": "returns", "value": "value", "entropy": "entropy"}

#: Statistics of rows or tokens by the last word of a quantity's name.
STATISTICS: Mapping[str, Callable[[Tensor], Mapping[str, Tensor]]] = {
    "mean": lambda x: {"mean": x.mean()},
    "max": lambda x: {"maximum": x.max()},
    "min": lambda x: {"minimum": x.min()},
    "std": lambda x: {"deviation (n - 1)": x.std(), "deviation (n)": x.std(correction=0)},
}


def judged(output: Output, reads: frozenset[str]) -> bool:
    """Whether the table knows the quantity of an output, and its inputs are read."""
    first, last = kind(output.quantity), output.quantity.rpartition(".")[2]
    plain = last in ("", first, *STATISTICS)
    if first == "kl":
        known = {"kl", "row_mean", "mean", *KL}
        return len(LOGPROBS & reads) >= 2 and "logits" not in reads and last in known
    if first in TOKENS:
        return TOKENS[first] in reads and plain and output.axes == "" and not {"logits", "logprob"} & reads
    if first == "ratio":
        return len(LOGPROBS & reads) >= 2 and plain
    return first in ROWS and plain and output.axes in ("", "B")


def definitions(output: Output, batch: Batch, reads: frozenset[str]) -> dict[str, Tensor]:
    """Name to value, in the axes of the output, of every accepted definition of its quantity."""
    first, last = kind(output.quantity), output.quantity.rpartition(".")[2]
    wide = _wide(batch, reads)
    if first in ROWS:
        rows = {n: f(wide).double() for n, f in ROWS[first].items()}
        return rows if output.axes == "B" else _over_rows(rows, wide, output, last)
    tokens = _tokens(first, last, wide, reads)
    if output.axes == "B T":
        return tokens
    if output.axes == "B":
        return _row_means(tokens, batch.mask) | _row_sums(tokens, batch.mask)
    return _over_tokens(tokens, wide, output, last if last in STATISTICS else "mean")


def _wide(batch: Batch, reads: frozenset[str]) -> Batch:
    from rl_sentinel.core.batch import COLUMNS, with_columns  # noqa: PLC0415
    signals = {n: getattr(batch, n).double() for n in reads if COLUMNS[n]["role"] == "signal"}
    return with_columns(batch, **signals)
