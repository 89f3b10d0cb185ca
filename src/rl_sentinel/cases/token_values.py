"""Rewards and weights per token as their papers and names say, by plain loops."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings

Named = dict[str, Tensor]


def _placed(batch: Batch, places: Tensor) -> Tensor:
    found = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for b in range(batch.rows):
        ends = [t for t in range(batch.width) if bool(places[b, t])]
        if ends:
            found[b, ends[-1]] = float(batch.reward[b])
    return found


def _at_last_trained(batch: Batch, _settings: Settings) -> Named:
    return {"at the last trained token": _placed(batch, batch.mask)}


def _at_last(batch: Batch, _settings: Settings) -> Named:
    return {"at the last response token": _placed(batch, batch.valid)}


#: Algorithm -> values per token, by reading.
VALUES: Mapping[str, Callable[[Batch, Settings], Named]] = {
    "outcome at the last trained token": _at_last_trained,
    "outcome at the last response token": _at_last,
}
