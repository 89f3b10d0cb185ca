"""Find numbers of a claimed formula that no name in the code states, by trying the literals of the code."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, product

import torch

from rl_sentinel.adapters.kit.formula_fit import NEAR, fits_reading, probes_of
from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.kit.normalized_advantages import normalizes_advantages
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.advantage_normalization import NORMALIZATIONS, SETTING
from rl_sentinel.formulas.algorithms import known_advantages
from rl_sentinel.formulas.kl_tokens import SHAPED
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.search.claimed_formulas import known_output, of_one_policy, references

#: Values to try where the code has no literal for a number.
_USUAL: Mapping[str, tuple[float, ...]] = {
    "clip_low": (0.2, 0.1, 0.3),
    "clip_high": (0.2, 0.28, 0.1, 0.3),
    "kl_loss_coef": (0.001, 0.01, 0.04, 0.1),
    "kl_coef": (0.001, 0.01, 0.04, 0.1),
}

#: Numbers that a formula has a default for.
_OPTIONAL = frozenset({"epsilon", "temperature"})

#: Numbers without which a formula is tried first: it has a form without them.
_TRIED_WITHOUT = _OPTIONAL | {"gamma", "lambda", "value_clip"}

#: Numbers that change nothing at a ratio of 1.
_OF_RATIOS: Mapping[str, float] = {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}

#: Largest literal that may be the offset of a divisor, and no discount.
_OFFSET = 0.1

#: Maximum number of combinations.
_MOST = 600


def with_fitted_numbers(
    target: Target,
    boundary: Boundary,
    literals: tuple[float, ...],
    bounds: frozenset[tuple[float, float]] = frozenset(),
) -> Boundary:
    """The boundary with the numbers that its formula needs, or undecided if they are unknown.

    A formula without a number that it needs would be compared wrongly, so it is not compared.

    Args:
        target: where the function is looked up.
        boundary: its boundary, with the numbers that are known by name.
        literals: numbers in its code, which are tried.
        bounds: pairs of literals in its code; those of a clip range are taken where no number fits.
    """
    stated = boundary.claims.algorithm is not None
    if stated and (why := _not_of_formula(boundary)):
        return _without_formula(boundary, why)
    if stated and of_one_policy(boundary):
        boundary = _with_settings(boundary, {**_OF_RATIOS, **boundary.settings["default"]})
    if stated and boundary.stage == "policy-loss" and normalizes_advantages(target, boundary):
        return _normalizing(target, boundary, literals)
    missing = _missing(boundary)
    if stated and (bounded := _with_ceiling(target, boundary, missing, literals)):
        return bounded
    if not missing:
        return boundary
    chosen = _fitting(target, boundary, missing, literals)
    if chosen is None:
        chosen = _clip_range(missing, bounds)
    if chosen is not None:
        return _with_settings(boundary, chosen, *_note(chosen, boundary))
    required = [name for name in missing if name not in _OPTIONAL]
    default = not required or (_is_temporal(boundary) and (not literals or _undiscounted(target, boundary)))
    return boundary if default else _without_formula(boundary, _undecided(boundary, required))


def _without_formula(boundary: Boundary, reason: str) -> Boundary:
    """The boundary whose formula is not compared."""
    return replace(boundary, claims=replace(boundary.claims, algorithm=None), undecided=reason)


def _with_settings(boundary: Boundary, numbers: Settings, *notes: str) -> Boundary:
    settings = {**boundary.settings["default"], **numbers}
    return replace(boundary, settings={"default": settings}, notes=(*boundary.notes, *notes))


def _with_ceiling(
    target: Target, boundary: Boundary, missing: list[str], literals: tuple[float, ...]
) -> Boundary | None:
    """The loss of PPO with a literal as the bound of its ratio (dual clip); None if it fits without, or with none."""
    open_ = value_of(boundary.claims.algorithm) == "ppo" and "ceiling" not in boundary.settings["default"]
    ceilings = sorted(x for x in literals if x > 1) if open_ and boundary.stage == "policy-loss" else []
    if not ceilings or _fitting(target, boundary, missing, literals) is not None:
        return None
    for ceiling in ceilings:
        trial = _with_settings(boundary, {"ceiling": ceiling})
        chosen = _fitting(target, trial, missing, literals)
        if chosen is not None:
            found = {**chosen, "ceiling": ceiling}
            return _with_settings(boundary, found, *_note(found, boundary))
    return None


def _clip_range(missing: list[str], bounds: frozenset[tuple[float, float]]) -> dict[str, float] | None:
    """The clip range that the only suitable pair of literals states, whether or not the loss fits: it may be wrong."""
    ranges = list[dict[str, float]]()
    if set(missing) == {"clip_low", "clip_high"}:
        ranges = [{"clip_low": round(1 - a, 12), "clip_high": round(b - 1, 12)} for a, b in bounds if 0 < a < 1 < b < 2]
    elif missing == ["value_clip"]:
        ranges = [{"value_clip": b} for a, b in bounds if a == -b < 0]
    return ranges[0] if len(ranges) == 1 else None


def _undiscounted(target: Target, boundary: Boundary) -> bool:
    """Whether all trained tokens of a row get the same advantage, which no discount leaves."""
    batch = domain_probe(boundary)
    try:
        values = outputs_on(target, boundary, batch)["advantage"]
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return False
    rows = [row[trained] for row, trained in zip(values, batch.mask, strict=True)] if values.dim() == 2 else []
    return all(torch.allclose(row, row[:1].expand_as(row), atol=NEAR) for row in rows)


def _normalizing(target: Target, boundary: Boundary, literals: tuple[float, ...]) -> Boundary:
    """The loss compared with a formula of normalized advantages; undecided if no normalization fits."""
    # A claimed ratio says how the gradient follows the advantages that are passed.
    boundary = replace(boundary, claims=replace(boundary.claims, ratio=None))
    for name in NORMALIZATIONS:
        trial = _with_settings(boundary, {SETTING: name}, f"the loss normalizes its advantages, {name}")
        chosen = _fitting(target, trial, _missing(trial), literals)
        if chosen is not None:
            return _with_settings(trial, chosen, *_note(chosen, trial))
    return _without_formula(boundary, _normalised(boundary))


def fits_formula(target: Target, boundary: Boundary) -> bool:
    """Whether the function computes a reading of its claimed formula on small batches."""
    if boundary.claims.algorithm is None or not set(missing := _missing(boundary)) <= _TRIED_WITHOUT:
        return False
    try:
        return _fitting(target, boundary, missing, ()) is not None
    except Exception:  # noqa: BLE001 - without a reading on these batches, nothing fits
        return False


def _not_of_formula(boundary: Boundary) -> str:
    """Why the formula of a loss is not that of what this loss reads; empty if it can be compared."""
    algorithm = value_of(boundary.claims.algorithm)
    if algorithm == "clipped value" and "old_value" not in boundary.reads:
        return (
            "not compared with the formula of clipped value, which needs old values, and the loss reads none: state "
            'algorithm "squared value", or "ppo" for either'
        )
    if boundary.stage != "policy-loss":
        return ""
    if "advantage" not in boundary.reads:
        why, other = "needs advantages, and the loss makes its own", "advantages"
    elif "logits" in boundary.reads:
        why, other = "reads no logits, as the loss does", "logits"
    elif {"old_logprob", "rollout_logprob"} <= boundary.reads:
        why, other = "has no weight of rollout log-probs, as the loss may", "weight"
    else:
        return ""
    return (
        f"not compared with the formula of {algorithm}, which {why}: "
        f"check the function of the {other} and that of the loss apart, or state no algorithm"
    )


def _normalised(boundary: Boundary) -> str:
    return (
        f"not compared with the formula of {value_of(boundary.claims.algorithm)}, which takes advantages as they are, "
        "and the loss normalizes them in an unknown way: check it with normalization off, or state no algorithm"
    )


def _undecided(boundary: Boundary, missing: list[str]) -> str:
    numbers = ", ".join(f'"{name}": ...' for name in missing)
    options = " ".join(f"--number {name}=NUMBER" for name in missing)
    return (
        f"not compared with the formula of {value_of(boundary.claims.algorithm)}, which needs "
        f"{' and '.join(missing)}: state numbers={{{numbers}}}, or {options} on the command line"
    )


def _note(chosen: Mapping[str, float], boundary: Boundary) -> list[str]:
    """What was found, except numbers that change nothing."""
    known = {n: x for n, x in chosen.items() if boundary.settings["default"].get(n) != x}
    numbers = ", ".join(f'"{name}": {x:g}' for name, x in known.items())
    return [f"numbers of the formula, found in the code: state them with numbers={{{numbers}}}"] if known else []


def _is_temporal(boundary: Boundary) -> bool:
    return boundary.stage == "advantage" and value_of(boundary.claims.algorithm) in TEMPORAL


def _missing(boundary: Boundary) -> list[str]:
    """The numbers of the claimed formula that are not known."""
    settings = boundary.settings["default"]
    if boundary.stage == "advantage" and known_advantages(boundary):
        names = ["gamma", "lambda"] if _is_temporal(boundary) else ["epsilon"]
        if value_of(boundary.claims.algorithm) == "reinforce++":
            names = ["gamma"]  # rewards to go have no decay
        return [name for name in names if name not in settings]
    if boundary.stage == "reward":
        return ["kl_coef"] if value_of(boundary.claims.algorithm) in SHAPED and "kl_coef" not in settings else []
    if boundary.stage == "batch":
        return [] if "temperature" in settings else ["temperature"]
    if "loss" not in boundary.outputs or not known_output(boundary, "loss"):
        return []
    names = ["kl_loss_coef"] if boundary.stage == "policy-loss" and "ref_logprob" in boundary.reads else []
    if value_of(boundary.claims.algorithm) == "ppo value" and "old_value" in boundary.reads:
        names = ["value_clip"]
    missing, trial = [name for name in names if name not in settings], dict(settings)
    while (name := _key_needed(boundary, trial)) and name not in trial:
        missing.append(name)
        trial[name] = 0.5
    return missing


def _key_needed(boundary: Boundary, settings: Settings) -> str:
    try:
        references(boundary, "loss", domain_probe(boundary), settings)
    except KeyError as missing:
        return str(missing.args[0])
    return ""


def _candidates(name: str, literals: tuple[float, ...]) -> tuple[float, ...]:
    """The values to try for a number; a clip range may be written as its bounds, 0.8 and 1.2."""
    inside = [x for x in literals if 0 < x < 1]
    if name in ("clip_low", "clip_high"):
        bounds = [round(abs(1 - x), 12) for x in literals if 0 < abs(1 - x) < 1]
        inside = [*inside, *bounds]
    if name == "kl_coef":  # the sign of a penalty may be part of the literal
        inside = [abs(x) for x in literals if 0 < abs(x) < 1]
    if name == "epsilon":
        inside = [x for x in inside if x <= _OFFSET]
    if name in ("gamma", "lambda"):
        inside = [1.0, *(x for x in inside if x > _OFFSET)]
    if name not in ("clip_low", "clip_high", "kl_loss_coef", "kl_coef", "epsilon", "gamma", "lambda"):
        inside = [x for x in literals if x > 0]
    return tuple(dict.fromkeys([*inside, *(_USUAL.get(name, ()) if not inside else ())]))


def _fitting(
    target: Target, boundary: Boundary, missing: list[str], literals: tuple[float, ...]
) -> dict[str, float] | None:
    """The first values of the missing numbers with which a reading of the formula equals the function's result."""
    settings = dict(boundary.settings["default"])
    try:
        observed = [(batch, outputs_on(target, boundary, batch)) for batch in probes_of(boundary)]
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return None

    def fits(chosen: Mapping[str, float]) -> bool:
        trial: dict[str, Scalar] = {**settings, **chosen}
        try:
            return all(
                fits_reading(boundary, n, x, batch, trial) for batch, values in observed for n, x in values.items()
            )
        except (IndexError, RuntimeError, KeyError):  # a result in another shape, or a formula that needs a number
            return False

    if set(missing) <= _TRIED_WITHOUT and fits({}):
        return {}
    options = islice(product(*(_candidates(name, literals) for name in missing)), _MOST)
    return next((chosen for values in options if fits(chosen := dict(zip(missing, values, strict=True)))), None)
