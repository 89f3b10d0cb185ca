"""Policy losses as their papers write them: a loss per token, in plain floats.

``frozen`` are the log-probs whose gradient is stopped: the same numbers, but left alone where a
difference is taken.
"""

from collections.abc import Callable
from math import exp

from oracle.rows import mean
from oracle.tokens import Grid, Mask, trained

LOW, HIGH, CEILING, WARM, COLD = 0.2, 0.3, 2.0, 1.0, 1.5

#: Current, frozen and old log-probs and advantages of a response's trained tokens -> its losses.
Loss = Callable[[list[float], list[float], list[float], list[float]], list[float]]


def _clip(ratio: float) -> float:
    if ratio < 1 - LOW:
        return 1 - LOW
    return min(ratio, 1 + HIGH)


def _clipped(ratio: float, weight: float) -> float:
    return -min(ratio * weight, _clip(ratio) * weight)


def _ppo(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    return [_clipped(exp(n - o), a) for n, o, a in zip(new, old, weight, strict=True)]


def _dual_clip(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    plain = _ppo(new, new, old, weight)
    return [min(x, -CEILING * a) if a < 0 else x for x, a in zip(plain, weight, strict=True)]


def _cispo(new: list[float], frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    return [-_clip(exp(f - o)) * a * n for n, f, o, a in zip(new, frozen, old, weight, strict=True)]


def _gspo(new: list[float], frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    whole = exp(mean([f - o for f, o in zip(frozen, old, strict=True)]))
    return [_clipped(whole * exp(n - f), a) for n, f, a in zip(new, frozen, weight, strict=True)]


def _gmpo(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    held = [min(n - o, HIGH) if a > 0 else max(n - o, -LOW) for n, o, a in zip(new, old, weight, strict=True)]
    return [-mean(weight) * exp(mean(held))] * len(new)


def _sapo(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    found = []
    for n, o, a in zip(new, old, weight, strict=True):
        steep = WARM if a > 0 else COLD
        found.append(-a * 4 / steep / (1 + exp(-steep * (exp(n - o) - 1))))
    return found


def _importance_sampling(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    return [-exp(n - o) * a for n, o, a in zip(new, old, weight, strict=True)]


def _reinforce(new: list[float], _frozen: list[float], _old: list[float], weight: list[float]) -> list[float]:
    return [-n * a for n, a in zip(new, weight, strict=True)]


LOSSES: dict[str, Loss] = {
    "ppo": _ppo,
    "dual_clip": _dual_clip,
    "cispo": _cispo,
    "gspo": _gspo,
    "gmpo": _gmpo,
    "sapo": _sapo,
    "importance_sampling": _importance_sampling,
    "reinforce": _reinforce,
}

#: The numbers that a loss is given, by name.
NUMBERS: dict[str, dict[str, float]] = {
    **{key: {"clip_low": LOW, "clip_high": HIGH} for key in ("ppo", "cispo", "gspo", "gmpo")},
    "dual_clip": {"clip_low": LOW, "clip_high": HIGH, "ceiling": CEILING},
    "sapo": {"temperature": WARM, "negative_temperature": COLD},
    "importance_sampling": {},
    "reinforce": {},
}


def per_token(name: str, new: Grid, frozen: Grid, old: Grid, weight: Grid, mask: Mask) -> Grid:  # noqa: PLR0913 - columns
    """The loss at each trained token."""
    found = [[0.0] * len(row) for row in mask]
    for b, m in enumerate(mask):
        kept = trained(m)
        columns = ([x[b][t] for t in kept] for x in (new, frozen, old, weight))
        for t, x in zip(kept, LOSSES[name](*columns), strict=True):
            found[b][t] = x
    return found
