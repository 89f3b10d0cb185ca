"""The path in plain lists: each stage after the other, row by row."""

from collections.abc import Callable
from math import exp

from oracle import corrections, rows, storage, tokens, trajectories
from oracle.tokens import Grid, Mask

#: Judges outcomes among siblings: of rewards, groups and which count.
Judge = Callable[[list[float], list[int], list[bool]], list[float]]


def after_rejection(own: Grid, rollout: Grid, mask: Mask, low: float, high: float) -> Mask:
    """Rows whose summed k1 lies within two bounds."""
    kept = corrections.rows_kept("k1", "sum", own, rollout, mask, low, high)
    return storage.narrowed(mask, [bool(k) for k in kept])


def weights(own: Grid, rollout: Grid, mask: Mask, high: float) -> Grid:
    """The whole row's ratio up to a bound, on each of its tokens."""
    found = []
    for one, other, on in zip(own, rollout, mask, strict=True):
        apart = sum(a - b for a, b, m in zip(one, other, on, strict=True) if m)
        found.append([min(exp(apart), high) if m else 0.0 for m in on])
    return found


def shaped(  # noqa: PLR0913 - columns and numbers
    reward: list[float],
    group: list[int],
    live: list[bool],
    scored: list[bool],
    bias: float,
    scale: float,
    bounds: tuple[float, float],
) -> list[float]:
    """Those that count are moved, scaled and cut, then less the mean of those of the group that count."""
    counts = [a and b for a, b in zip(live, scored, strict=True)]
    moved = [
        min(max((r + bias) * scale, bounds[0]), bounds[1]) if on else 0.0 for r, on in zip(reward, counts, strict=True)
    ]
    return rows.centred(moved, group, counts)


def priced(reward: Grid, estimate: Grid, mask: Mask, coefficient: float) -> Grid:
    """Of trained tokens: what they gain, less what they pay."""
    return tokens.in_reward(reward, estimate, mask, coefficient)


def totals(paid: Grid, mask: Mask, trajectory: list[int]) -> list[float]:
    """What a whole trajectory gained by its tokens, at each of its rows."""
    own = tokens.row_sums(paid, mask)
    return [sum(x for x, t in zip(own, trajectory, strict=True) if t == one) for one in trajectory]


def outcome_advantages(  # noqa: PLR0913 - columns of rows
    reward: list[float],
    gained: list[float],
    group: list[int],
    live: list[bool],
    trajectory: list[int],
    last: list[bool],
    judge: Judge,
) -> list[float]:
    """Each trajectory's last outcome judged, with what its tokens gained, and told to its live steps."""
    final = trajectories.last_steps(trajectory, last)

    def judged(told: list[float], of: list[int], alive: list[bool]) -> list[float]:
        return judge([r + gained[b] if on else 0.0 for r, b, on in zip(told, final, alive, strict=True)], of, alive)

    return trajectories.over_trajectories(reward, group, live, trajectory, last, judged)
