"""Shrink a counterexample greedily: fewer rows and positions, no exclusions, simpler numbers, a canonical form."""

from collections.abc import Callable, Iterator

import torch

from rl_sentinel.core.batch import COLUMNS, EXCLUDED, Batch, batch_of, take_positions, take_rows, with_columns
from rl_sentinel.core.case import Case, with_batch
from rl_sentinel.search.value_ranges import brought_inside, inside, outside

#: Most candidates tried for one finding.
MOST_TRIES = 1500


def _smaller(batch: Batch) -> Iterator[Batch]:
    """Yield batches without one row, or without one position if no response becomes empty."""
    for row in range(batch.rows if batch.rows > 1 else 0):
        yield take_rows(batch, torch.tensor([i for i in range(batch.rows) if i != row], device=batch.device))
    for position in range(batch.width if batch.width > 1 else 0):
        keep = torch.tensor([i for i in range(batch.width) if i != position], device=batch.device)
        smaller = take_positions(batch, keep)
        if bool((smaller.length > 0).all()):
            yield smaller


def _all_trained(batch: Batch) -> Iterator[Batch]:
    """Yield batches in which all response tokens are trained: first in all rows, then in one row.

    This removes exclusions that are not needed.
    """
    untrained = (batch.valid & ~batch.mask).any(dim=1)
    if untrained.any():
        rows = torch.nonzero(untrained).squeeze(1)
        for chosen in (untrained, *(torch.arange(batch.rows, device=batch.device) == row for row in rows)):
            mask = torch.where(chosen.unsqueeze(1), batch.valid, batch.mask)
            yield with_columns(batch, mask=mask, excluded=batch.excluded.masked_fill(chosen, EXCLUDED["in"]))


def _simpler(batch: Batch, reads: frozenset[str]) -> Iterator[Batch]:
    """Yield batches with one column set to its default value, or rounded to multiples of 1 or 0.5."""
    plain = batch_of(batch.mask)
    for name, about in COLUMNS.items():
        column = getattr(batch, name)
        if name in ("mask", "length", "excluded", "scored") or torch.equal(column, getattr(plain, name)):
            continue
        if name not in reads or about["role"] == "signal":
            yield with_columns(batch, **{name: getattr(plain, name)})
        if name in reads and about["role"] == "signal":
            for step in (1.0, 0.5):
                rounded = (column / step).round() * step
                if not torch.equal(rounded, column):
                    yield with_columns(batch, **{name: rounded})


def _simpler_cells(batch: Batch, reads: frozenset[str]) -> Iterator[Batch]:
    """Yield batches with one cell of a signal column set to 0, or to 1 (to -1 if 1 is out of range)."""
    for name in sorted(reads):
        if COLUMNS[name]["role"] != "signal":
            continue
        column = getattr(batch, name)
        for cell in torch.nonzero(column).tolist():
            for number in (0.0, 1.0 if inside(name, 1.0) else -1.0):
                if column[tuple(cell)] not in (0.0, number):
                    changed = column.clone()
                    changed[tuple(cell)] = number
                    yield with_columns(batch, **{name: changed})


def _canonical(batch: Batch) -> Iterator[Batch]:
    """Yield batches with sorted rows (live rows first, then by group), or with groups or trajectories renumbered."""
    order = torch.argsort((~batch.live).long() * 10_000 + batch.group, stable=True)
    if not torch.equal(order, torch.arange(batch.rows, device=batch.device)):
        yield take_rows(batch, order)
    for name in ("group", "trajectory"):
        labels = list(dict.fromkeys(getattr(batch, name).tolist()))
        fresh = torch.tensor([labels.index(x) for x in getattr(batch, name).tolist()], device=batch.device)
        if not torch.equal(fresh, getattr(batch, name)):
            yield with_columns(batch, **{name: fresh})


def _without_new_outliers(candidates: Iterator[Batch], before: Batch) -> Iterator[Batch]:
    """The candidates with at most as many out-of-range cells as ``before``."""
    most = outside(before)
    yield from (batch for batch in candidates if outside(batch) <= most)


def shrunk(case: Case, broken: Callable[[Case], bool], reads: frozenset[str]) -> Case:
    """The smallest case that a greedy search finds for which ``broken`` is still True.

    ``broken`` must check the precondition of the law again, so that a shrunk case never shows another fault. No step
    sets a number outside of its column's range (:data:`rl_sentinel.search.value_ranges.DOMAINS`); numbers that are
    outside from the start are moved inside if the fault still shows.
    """
    tries = 0

    def attempt(candidates: Callable[[Batch], Iterator[Batch]]) -> bool:
        nonlocal case, tries
        changed, progress = False, True
        while progress and tries < MOST_TRIES:
            progress = False
            for batch in _without_new_outliers(candidates(case.batch), case.batch):
                tries += 1
                candidate = with_batch(case, batch)
                if broken(candidate):
                    case, changed, progress = candidate, True, True
                    break
                if tries >= MOST_TRIES:
                    break
        return changed

    attempt(brought_inside)
    while attempt(_smaller) | attempt(_all_trained) | attempt(lambda b: _simpler(b, reads)) | attempt(brought_inside):
        pass
    attempt(lambda b: _simpler_cells(b, reads))
    for _ in range(4):
        for batch in _canonical(case.batch):
            candidate = with_batch(case, batch)
            if batch.rows == case.batch.rows and broken(candidate):
                case = candidate
                break
    return case
