"""Policy losses as their papers write them: a loss per token, in plain floats.

``frozen`` are the log-probs whose gradient is stopped: the same numbers, but left alone where a
difference is taken.
"""

from collections.abc import Callable
from math import exp, log

from oracle.rows import mean
from oracle.tokens import Grid, Mask, trained

LOW, HIGH, CEILING, WARM, COLD, PENALTY = 0.2, 0.3, 2.0, 1.0, 1.5, 0.7

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


def _dro(new: list[float], _frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    return [-a * n + PENALTY * (n - o) ** 2 / 2 for n, o, a in zip(new, old, weight, strict=True)]


def _distance(now: float, before: float) -> float:
    return abs(exp(now) - exp(before))


def _divergence(now: float, before: float) -> float:
    """Of one token against all others, from before to now."""
    p, q = exp(before), exp(now)
    return p * log(p / q) + (1 - p) * log((1 - p) / (1 - q))


def _held(far: Callable[[float, float], float]) -> Loss:
    """The log-prob by a constant weight, but nothing where a token is far and would go on."""

    def losses(new: list[float], frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
        found = []
        for n, f, o, a in zip(new, frozen, old, weight, strict=True):
            rises = a > 0 and f > o and far(f, o) > HIGH
            falls = a < 0 and f < o and far(f, o) > LOW
            found.append(0.0 if rises or falls else -a * min(exp(f - o), CEILING) * n)
        return found

    return losses


def _pulled(new: list[float], frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    plain = _importance_sampling(new, frozen, old, weight)
    return [x + PENALTY * abs(n - o) for x, n, o in zip(plain, new, old, strict=True)]


def _left_out(new: list[float], frozen: list[float], old: list[float], weight: list[float]) -> list[float]:
    """Where clipping does not rule, nothing."""
    plain = _ppo(new, frozen, old, weight)
    stopped = [_clip(exp(f - o)) * a < exp(f - o) * a for f, o, a in zip(frozen, old, weight, strict=True)]
    return [x if s else 0.0 for x, s in zip(plain, stopped, strict=True)]


LOSSES: dict[str, Loss] = {
    "ppo": _ppo,
    "dual_clip": _dual_clip,
    "cispo": _cispo,
    "gspo": _gspo,
    "gmpo": _gmpo,
    "sapo": _sapo,
    "importance_sampling": _importance_sampling,
    "reinforce": _reinforce,
    "dro": _dro,
    "dppo_tv": _held(_distance),
    "dppo_kl": _held(_divergence),
    "kl_cov": _importance_sampling,
    "clip_cov": _ppo,
}

#: What a loss is at tokens that were chosen, where it treats some apart.
CHOSEN: dict[str, Loss] = {"kl_cov": _pulled, "clip_cov": _left_out}

#: The numbers that a loss is given, by name.
NUMBERS: dict[str, dict[str, float]] = {
    **{key: {"clip_low": LOW, "clip_high": HIGH} for key in ("ppo", "cispo", "gspo", "gmpo", "clip_cov")},
    **{key: {"clip_low": LOW, "clip_high": HIGH, "ceiling": CEILING} for key in ("dual_clip", "dppo_tv", "dppo_kl")},
    **{key: {"penalty": PENALTY} for key in ("dro", "kl_cov")},
    "sapo": {"temperature": WARM, "negative_temperature": COLD},
    "importance_sampling": {},
    "reinforce": {},
}


def per_token(  # noqa: PLR0913 - columns
    name: str, new: Grid, frozen: Grid, old: Grid, weight: Grid, mask: Mask, chosen: Mask
) -> Grid:
    """The loss at each trained token."""
    found = [[0.0] * len(row) for row in mask]
    for b, m in enumerate(mask):
        kept = trained(m)
        columns = [[x[b][t] for t in kept] for x in (new, frozen, old, weight)]
        plain, apart = LOSSES[name](*columns), CHOSEN.get(name, LOSSES[name])(*columns)
        for t, x, y in zip(kept, plain, apart, strict=True):
            found[b][t] = y if chosen[b][t] else x
    return found
