"""How a batch is laid out for a call; an adapter names one, and ``take(put(x))`` is ``x``."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch


def token_rewards(batch: Batch) -> Tensor:
    """``[B, T]``: rewards per token, with the outcome reward on the last response token."""
    last = torch.arange(batch.width) == (batch.length - 1).unsqueeze(1)
    return batch.token_reward + torch.where(last, batch.reward.unsqueeze(1), 0.0)


def put_right(column: Tensor, length: Tensor) -> Tensor:
    """Right-aligned: a row's tokens move to the end, padding to the front."""
    out = torch.zeros_like(column)
    for row, n in enumerate(length.tolist()):
        out[row, column.shape[1] - n :] = column[row, :n]
    return out


def take_right(column: Tensor, length: Tensor) -> Tensor:
    """The inverse of :func:`put_right`, up to what stood in the padding."""
    out = torch.zeros_like(column)
    for row, n in enumerate(length.tolist()):
        out[row, :n] = column[row, column.shape[1] - n :]
    return out


def put_ragged(column: Tensor, length: Tensor) -> list[Tensor]:
    """One 1-D tensor per response, padding left out."""
    return [column[row, :n].clone() for row, n in enumerate(length.tolist())]


def take_ragged(parts: Sequence[Tensor], width: int) -> Tensor:
    """The inverse of :func:`put_ragged`: padding is 0."""
    return torch.stack([torch.nn.functional.pad(p, (0, width - p.shape[0])) for p in parts])


def put_full(column: Tensor, batch: Batch, extra: int = 0, shift: int = 0) -> Tensor:
    """Full sequences ``[B, S]``: each row's prompt, its response, then padding.

    Prompt positions get 0; ``S`` is the longest prompt plus ``T`` plus ``extra``; ``shift`` is 1
    where position t predicts t + 1.
    """
    width = int(batch.prompt_length.max()) + batch.width + extra
    out = column.new_zeros(batch.rows, width)
    for row, (p, n) in enumerate(zip(batch.prompt_length.tolist(), batch.length.tolist(), strict=True)):
        out[row, p - shift : p - shift + n] = column[row, :n]
    return out


def take_full(column: Tensor, batch: Batch, shift: int = 0) -> Tensor:
    """Response-aligned ``[B, T]`` from full sequences; ``shift`` 1 where position t predicts t + 1."""
    out = column.new_zeros(batch.rows, batch.width)
    for row, (p, n) in enumerate(zip(batch.prompt_length.tolist(), batch.length.tolist(), strict=True)):
        out[row, :n] = column[row, p - shift : p - shift + n]
    return out
