"""Metrics in plain floats, over lists of what counts."""

from math import exp

from oracle.rows import deviation, mean
from oracle.tokens import Grid, Mask

Pair = tuple[float, float]


def counted(values: Grid, mask: Mask) -> list[float]:
    """What stands on the mask, one after the other."""
    return [x for row, own in zip(values, mask, strict=True) for x, on in zip(row, own, strict=True) if on]


def statistics(numbers: list[float]) -> list[float]:
    """Mean, deviation, least, most; 0 of nothing."""
    return [mean(numbers), deviation(numbers), min(numbers, default=0.0), max(numbers, default=0.0)]


def staleness(version: list[list[int]], mask: Mask, current: int) -> list[float]:
    """Mean and most over tokens, and how many of the live rows are of several versions."""
    rows = [[current - v for v, on in zip(*both, strict=True) if on] for both in zip(version, mask, strict=True)]
    tokens = [float(a) for row in rows for a in row]
    mixed = [len(set(row)) > 1 for row in rows if row]
    return [mean(tokens), max(tokens, default=0.0), share(mixed)]


def fresh_rows(version: list[list[int]], mask: Mask, current: int, most: float) -> list[bool]:
    """No trained token is too old, and there is one."""
    rows = [[v for v, on in zip(*both, strict=True) if on] for both in zip(version, mask, strict=True)]
    return [bool(row) and all(current - v <= most for v in row) for row in rows]


def share(facts: list[bool]) -> float:
    """Of those that count."""
    return sum(facts) / len(facts) if facts else 0.0


def _cut(log_ratio: float, weight: float, low: float, high: float) -> bool:
    ratio = exp(log_ratio)
    return (weight > 0 and ratio > 1 + high) or (weight < 0 and ratio < 1 - low)


def clip_fraction(own: Grid, old: Grid, weight: Grid, mask: Mask, low: float, high: float) -> Pair:  # noqa: PLR0913
    """Token by token, and row by row."""
    tokens, rows = [], []
    for now, before, gain, on in zip(own, old, weight, mask, strict=True):
        kept = [(a - b, w) for a, b, w, m in zip(now, before, gain, on, strict=True) if m]
        tokens += [_cut(d, w, low, high) for d, w in kept]
        if kept:
            rows.append(_cut(mean([d for d, _ in kept]), mean([w for _, w in kept]), low, high))
    return share(tokens), share(rows)


def mean_kl(own: Grid, other: Grid, mask: Mask) -> Pair:
    """The mean log-ratio, and that of the estimate that is never negative."""
    apart = [a - b for a, b in zip(counted(own, mask), counted(other, mask), strict=True)]
    return mean(apart), mean([exp(-d) - 1 + d for d in apart])


def effective_sample_size(weights: list[float]) -> float:
    """Squared sum by count and sum of squares."""
    squares = sum(w * w for w in weights)
    return sum(weights) ** 2 / (len(weights) * squares) if squares > 0 else 0.0


def dead_group_fraction(reward: list[float], group: list[int], live: list[bool]) -> float:
    """Prompts with but one reward among those that have any."""
    by_prompt: dict[int, set[float]] = {}
    for r, g, on in zip(reward, group, live, strict=True):
        if on:
            by_prompt.setdefault(g, set()).add(r)
    return share([len(found) == 1 for found in by_prompt.values()])


def explained_variance(value: list[float], aim: list[float]) -> float:
    """1 less what is left of the variance."""
    whole = deviation(aim, biased=True) ** 2
    left = deviation([a - v for a, v in zip(aim, value, strict=True)], biased=True) ** 2
    return 1 - left / whole if whole > 0 else 0.0
