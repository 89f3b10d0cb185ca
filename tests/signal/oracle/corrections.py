"""Rollout correction in plain floats: weights, bounds, rejection, OPSM, M2PO."""

from collections.abc import Callable
from math import exp

from oracle.rows import mean
from oracle.tokens import Grid, Mask, trained


def _apart(own: Grid, other: Grid, mask: Mask) -> list[list[float]]:
    """For each response, how much likelier its trained tokens are than under the other policy, in nats."""
    return [[own[b][t] - other[b][t] for t in trained(m)] for b, m in enumerate(mask)]


def _back(rows: list[list[float]], mask: Mask) -> Grid:
    found = [[0.0] * len(m) for m in mask]
    for b, m in enumerate(mask):
        for t, x in zip(trained(m), rows[b], strict=True):
            found[b][t] = x
    return found


def log_ratios(own: Grid, rollout: Grid, mask: Mask) -> Grid:
    """Per token."""
    return _back(_apart(own, rollout, mask), mask)


def token_weights(own: Grid, rollout: Grid, mask: Mask) -> Grid:
    """Per token."""
    return _back([[exp(d) for d in row] for row in _apart(own, rollout, mask)], mask)


def sequence_weights(own: Grid, rollout: Grid, mask: Mask) -> list[float]:
    """The product of a response's ratios."""
    found = []
    for row in _apart(own, rollout, mask):
        product = 1.0 if row else 0.0
        for d in row:
            product *= exp(d)
        found.append(product)
    return found


def geometric_weights(own: Grid, rollout: Grid, mask: Mask) -> list[float]:
    """The n-th root of that product."""
    products = sequence_weights(own, rollout, mask)
    return [x ** (1 / len(trained(m))) if x else 0.0 for x, m in zip(products, mask, strict=True)]


def bounded(kind: str, weight: Grid, mask: Mask, low: float, high: float) -> Grid:
    """Up to a bound, between two, or 0 beyond them."""
    forms: dict[str, Callable[[float], float]] = {
        "truncated": lambda w: min(w, high),
        "clipped": lambda w: high if w > high else max(w, low),
        "masked": lambda w: 0.0 if w > high or w < low else w,
    }
    return [[forms[kind](w) if k else 0.0 for w, k in zip(*r, strict=True)] for r in zip(weight, mask, strict=True)]


def self_normalised(weight: Grid, mask: Mask) -> Grid:
    """By the mean of those that count."""
    every = [weight[b][t] for b, m in enumerate(mask) for t in trained(m)]
    return [[w / mean(every) if k else 0.0 for w, k in zip(*r, strict=True)] for r in zip(weight, mask, strict=True)]


def _estimate(kind: str, d: float) -> float:
    """Of the KL from the sampler to the policy, where ``d`` is the policy's log-ratio to the sampler."""
    return {"k1": -d, "k2": 0.5 * d * d, "k3": exp(d) - 1 - d}[kind]


def tokens_kept(kind: str, own: Grid, rollout: Grid, mask: Mask, low: float, high: float) -> Grid:  # noqa: PLR0913
    """Within bounds, each by itself."""
    rows = _apart(own, rollout, mask)
    return _back([[float(low <= _estimate(kind, d) <= high) for d in row] for row in rows], mask)


def rows_kept(kind: str, over: str, own: Grid, rollout: Grid, mask: Mask, low: float, high: float) -> list[float]:  # noqa: PLR0913
    """Within bounds, one number for each response."""
    found = []
    for row in _apart(own, rollout, mask):
        every = [_estimate(kind, d) for d in row]
        numbers = {"sum": sum(every), "mean": mean(every), "max": max(every, default=0.0)}
        found.append(float(bool(row) and low <= numbers[over] <= high))
    return found


def vetoed(own: Grid, rollout: Grid, mask: Mask, floor: float) -> list[float]:
    """No token below the floor."""
    return [float(bool(row) and not any(exp(d) < floor for d in row)) for row in _apart(own, rollout, mask)]


def off_policy_sequences_kept(own: Grid, old: Grid, weight: Grid, mask: Mask, threshold: float) -> list[float]:
    """Dropped where the mean advantage is negative and the policy has moved away."""
    found = []
    for b, row in enumerate(_apart(old, own, mask)):
        bad = mean([weight[b][t] for t in trained(mask[b])]) < 0
        found.append(float(bool(row) and not (bad and mean(row) > threshold)))
    return found


def second_moment_kept(own: Grid, old: Grid, mask: Mask, threshold: float) -> Grid:
    """The farthest are dropped, one after the other, until the mean square of the rest is small."""
    rows = _apart(own, old, mask)
    rest = sorted((d * d for row in rows for d in row), reverse=True)
    while rest and mean(rest) > threshold:
        rest = [x for x in rest if x < rest[0]]
    bound = rest[0] if rest else -1.0
    return _back([[float(d * d <= bound) for d in row] for row in rows], mask)


def rejected_fraction(keep: list[bool], live: list[bool], denominator: float) -> float:
    """Live and dropped, each once."""
    return sum(1 for k, alive in zip(keep, live, strict=True) if alive and not k) / denominator
