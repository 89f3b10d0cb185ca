"""Rows one after another, in plain lists."""

from collections.abc import Sequence

from oracle.tokens import Grid, Mask


def packed(values: Sequence[Sequence[float]], length: list[int]) -> list[float]:
    """Token by token."""
    return [row[t] for row, count in zip(values, length, strict=True) for t in range(count)]


def padded(values: list[float], length: list[int], width: int, fill: float) -> Grid:
    """Taken from the front, a row at a time."""
    left = list(values)
    return [[left.pop(0) for _ in range(count)] + [fill] * (width - count) for count in length]


def narrowed(mask: Mask, keep: list[bool]) -> Mask:
    """Nothing of a row that is not kept."""
    return [[on and kept for on in row] for row, kept in zip(mask, keep, strict=True)]


def turns(mask: Mask) -> Grid:
    """At each trained token how many there were before; 0 elsewhere."""
    return [[float(sum(row[:t])) if on else 0.0 for t, on in enumerate(row)] for row in mask]


def row_counts(mask: Mask) -> list[float]:
    """One by one."""
    return [float(len([on for on in row if on])) for row in mask]


def row_maxima(values: Grid, mask: Mask) -> list[float]:
    """The best of each row; nothing beats nothing."""
    return [
        max((x for x, on in zip(row, own, strict=True) if on), default=-float("inf"))
        for row, own in zip(values, mask, strict=True)
    ]


def lined_up(values: Grid, mask: Mask) -> Grid:
    """Trained ones first, then 0."""
    found = []
    for row, own in zip(values, mask, strict=True):
        kept = [x for x, on in zip(row, own, strict=True) if on]
        found.append(kept + [0.0] * (len(row) - len(kept)))
    return found
