"""Mini-batches of consecutive prompts: the rows of each, their number and their largest size."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings


def _prompts(batch: Batch) -> list[int]:
    """The prompts in the order of their first rows."""
    return list(dict.fromkeys(batch.group.tolist()))


def _in_turn(batch: Batch, settings: Settings) -> Tensor:
    """The index of the mini-batch of each row, if each mini-batch has the same number of consecutive prompts."""
    order, size = _prompts(batch), int(settings["prompts"] or 1)
    return torch.tensor([order.index(g) // size for g in batch.group.tolist()], dtype=torch.float64)


def _largest(batch: Batch, settings: Settings) -> Tensor:
    return torch.tensor(float(min(len(_prompts(batch)), int(settings["prompts"] or 1))))


def _count(batch: Batch, settings: Settings) -> Tensor:
    size = int(settings["prompts"] or 1)
    return torch.tensor(float(sum(1 for n in range(len(_prompts(batch))) if n % size == 0)))


#: Algorithm -> the mini-batch of each row.
MINI_BATCHES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"mini-batches of prompts in turn": _in_turn}

#: Algorithm -> one number for the batch.
COUNTS_OF_MINI_BATCHES: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    "prompts of the largest mini-batch": _largest,
    "mini-batches": _count,
}
