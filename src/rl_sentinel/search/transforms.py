"""Transforms of a batch that laws use; each returns a new batch."""

from collections.abc import Iterable

import torch
from torch import Tensor

from rl_sentinel.core.batch import COLUMNS, Batch, columns, take_rows, with_columns

#: Difference between new group ids: a multiple of 2 to 6, so that all ids are equal modulo a small number of groups.
_APART = 60


def moved(batch: Batch, column: str, where: Tensor, amount: float) -> Batch:
    """Add ``amount`` to a signal column where ``where`` is True, which has the first axes of the column or all of them.

    Log-probabilities stay at most 0: no sampler emits larger ones, and their exponential overflows.
    """
    old = getattr(batch, column)
    while where.dim() < old.dim():
        where = where.unsqueeze(-1)
    new = (old + amount).clamp(max=0.0) if column.endswith("logprob") else old + amount
    return with_columns(batch, **{column: torch.where(where, new, old)})


def replaced(batch: Batch, column: str, where: Tensor, number: float) -> Batch:
    """Set a signal column to ``number`` where ``where`` (``[B]`` or ``[B, T]``) is True."""
    old = getattr(batch, column)
    while where.dim() < old.dim():
        where = where.unsqueeze(-1)
    return with_columns(batch, **{column: torch.where(where, torch.full_like(old, number), old)})


def padded(batch: Batch, extra: int) -> Batch:
    """Add ``extra`` positions of padding at the right, with 0 in each column."""
    wide = {}
    for name, about in COLUMNS.items():
        if about["axes"].startswith("B T"):
            old = getattr(batch, name)
            fresh = old.new_zeros(old.shape[0], extra, *old.shape[2:])
            wide[name] = torch.cat([old, fresh], dim=1)
    return with_columns(batch, **wide)


def without_rows(batch: Batch, removed: Tensor) -> Batch:
    """The rows where ``removed`` (``[B]`` bool) is False."""
    return take_rows(batch, torch.nonzero(~removed).squeeze(1))


def doubled(batch: Batch) -> Batch:
    """Repeat every row; the copies form separate groups and trajectories."""
    again = take_rows(batch, torch.arange(batch.rows, device=batch.device).repeat(2))
    second = torch.arange(2 * batch.rows, device=batch.device) >= batch.rows
    apart = {
        name: torch.where(second, getattr(again, name) + 1 + getattr(batch, name).max(), getattr(again, name))
        for name in ("group", "trajectory")
    }
    return with_columns(again, **apart)


def relabeled(batch: Batch) -> Batch:
    """Rename the groups: the new ids are in another order, and are all equal modulo a small number of groups."""
    ids = torch.tensor(sorted(set(batch.group.tolist())), device=batch.device)
    fresh = _APART * torch.arange(len(ids), device=batch.device).flip(0) + 11
    return with_columns(batch, group=fresh[torch.searchsorted(ids, batch.group)])


def on_policy(batch: Batch) -> Batch:
    """The batch with old, reference and sampler log-probs equal to the current ones."""
    same = {n: batch.logprob.clone() for n in columns(axes="B T") if n.endswith("_logprob")}
    return with_columns(batch, **same)


def outcome_moved(batch: Batch, reads: Iterable[str], where: Tensor, amount: float) -> Batch:
    """Add ``amount`` to the task reward, in each column that has the task reward and is read."""
    for column in sorted({"reward", "reward_parts"} & set(reads)):
        batch = moved(batch, column, where, amount)
    return batch


def interleaved(group: Tensor) -> Tensor:
    """``[B]`` row indices in an order that takes one row of each group in turn."""
    same = group.unsqueeze(0) == group.unsqueeze(1)
    turn = (
        same
        & (torch.arange(len(group), device=group.device) < torch.arange(len(group), device=group.device).unsqueeze(1))
    ).sum(dim=1)
    return torch.argsort(turn, stable=True)
