"""Staleness: the number of updates since each token was sampled, and which rows are recent enough."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of


def _behind(batch: Batch, settings: Settings) -> list[list[float]]:
    """For each row, how many updates each of its trained tokens is behind the current weights."""
    now = number_of(settings, "current")
    rows = zip(batch.version.tolist(), batch.mask.tolist(), strict=True)
    return [[now - v for v, trained in zip(row, mask, strict=True) if trained] for row, mask in rows]


def _mean(batch: Batch, settings: Settings) -> Tensor:
    every = [x for row in _behind(batch, settings) for x in row]
    return torch.tensor(sum(every) / max(1, len(every)), dtype=torch.float64)


def _most(batch: Batch, settings: Settings) -> Tensor:
    every = [x for row in _behind(batch, settings) for x in row]
    return torch.tensor(max(every, default=0.0), dtype=torch.float64)


def _mixed(batch: Batch, settings: Settings) -> Tensor:
    live = [row for row in _behind(batch, settings) if row]
    return torch.tensor(sum(len(set(row)) > 1 for row in live) / max(1, len(live)), dtype=torch.float64)


def _fresh(batch: Batch, settings: Settings) -> Tensor:
    """``[B]``: 1 if the oldest trained token of a row is recent enough, else 0."""
    most = number_of(settings, "most")
    return torch.tensor([float(bool(row) and max(row) <= most) for row in _behind(batch, settings)]).double()


#: Algorithm -> decisions per row (1 for kept, 0 for dropped).
FRESH: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"fresh rows": _fresh}

#: Algorithm -> one number for the batch.
AGES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "mean updates behind": _mean,
    "most updates behind": _most,
    "share of rows of several versions": _mixed,
}
