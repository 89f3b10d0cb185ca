"""Tables of layout and count quantities by name: per token, per row, or one number for the batch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.logits import MEANS_OF_LOGITS, OF_LOGITS
from rl_sentinel.formulas.mini_batches import COUNTS_OF_MINI_BATCHES, MINI_BATCHES
from rl_sentinel.formulas.trajectories import COUNTS_OF_TURNS, OUTCOMES


def _until_end(batch: Batch, settings: Settings) -> Tensor:
    """1 at each position without an end token before it, else 0; padding is not treated differently."""
    ends = {settings["end"], settings.get("other_end")}
    rows = [[float(not ends & set(row[:t])) for t in range(len(row))] for row in batch.token.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _before(batch: Batch, _settings: Settings) -> Tensor:
    rows = [[sum(row[:t]) for t in range(len(row))] for row in batch.mask.tolist()]
    return torch.tensor(rows, dtype=torch.float64)


def _gains(batch: Batch, _settings: Settings) -> Tensor:
    rows = [sum(batch.token_reward[b, : int(batch.length[b])].tolist()) for b in range(batch.rows)]
    return torch.tensor(sum(rows), dtype=torch.float64)


#: Algorithm -> values at trained tokens.
ORDERED: Mapping[str, Callable[[Batch, Settings], Tensor]] = {"trained tokens before": _before}

#: Algorithm -> values per row or token, which are defined at all positions.
LAID_OUT: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    **OF_LOGITS,
    **MINI_BATCHES,
    **OUTCOMES,
    "1 up to the first end token": _until_end,
    "values of trained tokens": lambda batch, _settings: torch.where(batch.mask, batch.value.double(), 0.0),
    "newest weights": lambda batch, _settings: torch.zeros(batch.rows, dtype=torch.float64),
}

#: Algorithm -> one number for the batch.
COUNTS: Mapping[str, Callable[[Batch, Settings], Tensor]] = {
    **MEANS_OF_LOGITS,
    **COUNTS_OF_MINI_BATCHES,
    **COUNTS_OF_TURNS,
    "tokens of responses and of prompts of one token": lambda batch, _settings: (batch.length + 1).sum().double(),
    "trained tokens": lambda batch, _settings: batch.mask.sum().double(),
    "token rewards of responses": _gains,
}
