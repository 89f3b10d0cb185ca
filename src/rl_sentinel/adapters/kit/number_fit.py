"""Find numbers of a claimed formula that have no known name in the code, by trying the literals of the code."""

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from rl_sentinel.adapters.kit.clip_bounds import clip_bounds
from rl_sentinel.adapters.kit.formula_fit import NEAR, unclipped_probes
from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.kit.normalized_advantages import normalizes_advantages
from rl_sentinel.adapters.kit.number_trial import OPTIONAL, candidates, fitting_numbers, is_temporal, missing_numbers
from rl_sentinel.adapters.kit.numbers_in_code import Literals
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims, value_of
from rl_sentinel.formulas.advantage_normalization import NORMALIZATIONS, SETTING
from rl_sentinel.formulas.policy_losses import WITHOUT_ADVANTAGES
from rl_sentinel.formulas.token_values import REWARDED
from rl_sentinel.search.claimed_losses import of_one_policy

#: Numbers that have no effect at a ratio of 1 -> the value to use there.
_OF_RATIOS: Mapping[str, float] = {"clip_low": 0.2, "clip_high": 0.2, "ceiling": 3.0}

#: A clip range above this and below 1 is probably a bound: 0.8 instead of a range of 0.2.
_WIDEST = 0.5


def with_fitted_numbers(target: Target, boundary: Boundary, literals: Literals) -> Boundary:
    """The boundary with the numbers that its formula needs, or the undecided boundary if they are unknown.

    A formula without a number that it needs would be compared wrongly, so it is not compared.

    Args:
        target: where the function is looked up.
        boundary: its boundary, with the numbers that are known by name.
        literals: numbers in its code, which are tried; if no number fits a clip range, its bounds in the code are used.
    """
    if boundary.claims.algorithm is not None:
        if of_one_policy(boundary):
            boundary = _with_settings(boundary, {**_OF_RATIOS, **boundary.settings["default"]})
        if variant := _variant(target, boundary, literals):
            return variant
    missing = missing_numbers(boundary)
    chosen = fitting_numbers(target, boundary, missing, literals) if missing or "loss" in boundary.outputs else {}
    if chosen is None:
        chosen = _with_fixed_length(target, boundary, missing, literals) or _with_other_aggregation(
            target, boundary, literals
        )
    if chosen is None and set(missing) == {"clip_low", "clip_high"}:
        chosen = clip_bounds(target, boundary, candidates("clip_low", literals.floats))
    if chosen is None:
        chosen = _clip_range(missing, literals.bounds)
    if chosen is not None:
        wide = {
            name: x for name, x in chosen.items() if name in missing and _WIDEST < x < 1 and name.startswith("clip")
        }
        if any(x not in literals.floats for x in wide.values()):  # 1 minus a literal, which is not a bound
            return _without_formula(boundary, _why_undecided(boundary, [*wide]))
        if wide:
            return _without_formula(boundary, _why_wide_range(boundary, wide))
        return _with_settings(boundary, chosen, *_note(chosen, boundary))
    required = [name for name in missing if name not in OPTIONAL]
    default = not required or (is_temporal(boundary) and (not literals.floats or _undiscounted(target, boundary)))
    return boundary if default else _without_formula(boundary, _why_undecided(boundary, required))


def _variant(target: Target, boundary: Boundary, literals: Literals) -> Boundary | None:
    """The boundary with a variant of its algorithm, or without a formula that cannot fit; None if neither applies."""
    if weighted := _with_sampler_weight(target, boundary, literals):
        return weighted
    if why := _why_not_of_formula(boundary):
        return _without_formula(boundary, why)
    if boundary.stage == "policy-loss" and normalizes_advantages(target, boundary):
        return _normalizing(target, boundary, literals)
    return _with_upper_bound_only(target, boundary, literals) or _with_ceiling(target, boundary, literals)


def _without_formula(boundary: Boundary, reason: str) -> Boundary:
    """The boundary, changed so that its formula is not compared."""
    return replace(boundary, claims=replace(boundary.claims, algorithm=None), undecided=reason)


def _with_settings(boundary: Boundary, numbers: Settings, *notes: str) -> Boundary:
    settings = {**boundary.settings["default"], **numbers}
    return replace(boundary, settings={"default": settings}, notes=(*boundary.notes, *notes))


def _with_ceiling(target: Target, boundary: Boundary, literals: Literals) -> Boundary | None:
    """The loss with a literal as the largest ratio (dual clip for PPO); None if this is not needed or does not fit."""
    missing = missing_numbers(boundary)
    bounded = value_of(boundary.claims.algorithm) in ("ppo", "importance sampling")
    open_ = bounded and "ceiling" not in boundary.settings["default"]
    ceilings = sorted(x for x in literals.floats if x > 1) if open_ and boundary.stage == "policy-loss" else []
    if not ceilings or fitting_numbers(target, boundary, missing, literals) is not None:
        return None
    for ceiling in ceilings:
        trial = _with_settings(boundary, {"ceiling": ceiling})
        chosen = fitting_numbers(target, trial, missing, literals)
        # A ceiling at the upper bound of the clip range would clip both signs of the advantage alike.
        highest = 1 + float({**boundary.settings["default"], **(chosen or {})}.get("clip_high") or 0)
        if chosen is not None and ceiling > highest:
            found = {**chosen, "ceiling": ceiling}
            return _with_settings(boundary, found, *_note(found, boundary))
    return None


def _with_upper_bound_only(target: Target, boundary: Boundary, literals: Literals) -> Boundary | None:
    """CISPO without a lower bound of its weights, as its authors use it; None if it does not fit.

    The upper bound is 1 plus a number, or the number itself.
    """
    known = boundary.settings["default"]
    if value_of(boundary.claims.algorithm) != "cispo" or float(known.get("clip_low") or 1) < 1:
        return None
    stated = known.get("clip_high")
    numbers = [float(stated)] if isinstance(stated, int | float) else [x for x in literals.floats if x > 0]
    for high in (*numbers, *(x - 1 for x in numbers if x > 1)):
        trial = _with_settings(boundary, {"clip_low": 1.0, "clip_high": high})  # a ratio is never below 0
        chosen = fitting_numbers(target, trial, missing_numbers(trial), literals)
        if chosen is not None:
            return _with_settings(trial, chosen, *_note(chosen, boundary))
    return None


def _with_sampler_weight(target: Target, boundary: Boundary, literals: Literals) -> Boundary | None:
    """The loss weighted by the truncated ratio to the sampler; None if it reads no such ratio, or no bound fits.

    A loss that fits at ratios within the clip range has this weight, even if its clipping is wrong.
    """
    if boundary.stage != "policy-loss" or not {"old_logprob", "rollout_logprob", "advantage"} <= boundary.reads:
        return None
    caps = [*(x for x in (*literals.floats, *map(float, literals.sizes)) if x >= 1), math.inf]
    trials = [
        replace(boundary, claims=boundary.claims | claims("its code", corrected_at_most=cap, corrected_by=by))
        for cap in caps
        for by in ("token", "row")
    ]
    for probes in (None, unclipped_probes(boundary)):
        for trial in trials:
            missing = missing_numbers(trial)
            chosen = fitting_numbers(target, trial, missing, literals, probes)
            if chosen is not None and (probes is None or not missing):
                cap = value_of(trial.claims.corrected_at_most)
                bound = f"at most {cap:g}" if math.isfinite(cap or 0.0) else "not truncated"
                note = f"the loss is weighted by the ratio to the sampler, {bound}"
                return _with_settings(trial, chosen, note, *_note(chosen, trial))
    return None


def _with_fixed_length(
    target: Target, boundary: Boundary, missing: list[str], literals: Literals
) -> dict[str, float] | None:
    """The numbers of a loss that divides by a fixed length in its code; None if no length fits."""
    if "loss" not in boundary.outputs or "length" in boundary.settings["default"]:
        return None
    for length in literals.sizes:
        chosen = fitting_numbers(target, _with_settings(boundary, {"length": float(length)}), missing, literals)
        if chosen is not None:
            return {**chosen, "length": float(length)}
    return None


def _with_other_aggregation(target: Target, boundary: Boundary, literals: Literals) -> dict[str, float] | None:
    """The missing numbers with which a loss fits its formula under any aggregation.

    None if no number is missing, if the aggregation is not stated, or if no numbers fit.
    If they fit, the loss differs from its claims only in the aggregation.
    """
    stated = boundary.claims.aggregation
    if stated is None or stated.value == "any" or not (missing := missing_numbers(boundary)):
        return None
    open_ = replace(boundary, claims=replace(boundary.claims, aggregation=replace(stated, value="any")))
    return fitting_numbers(target, open_, missing, literals)


def _clip_range(missing: list[str], bounds: frozenset[tuple[float, float]]) -> dict[str, float] | None:
    """The missing clip range from the only suitable pair of literals; None if no pair, or several pairs, are suitable.

    The loss need not fit with this range, because the loss may be wrong.
    """
    ranges = list[dict[str, float]]()
    if set(missing) == {"clip_low", "clip_high"}:
        ranges = [{"clip_low": round(1 - a, 12), "clip_high": round(b - 1, 12)} for a, b in bounds if 0 < a < 1 < b < 2]
    elif missing == ["value_clip"]:
        ranges = [{"value_clip": b} for a, b in bounds if a == -b < 0]
    return ranges[0] if len(ranges) == 1 else None


def _undiscounted(target: Target, boundary: Boundary) -> bool:
    """Whether all trained tokens of a row get the same advantage, which means that no discount is used."""
    batch = domain_probe(boundary)
    try:
        values = outputs_on(target, boundary, batch)["advantage"]
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return False
    rows = [row[trained] for row, trained in zip(values, batch.mask, strict=True)] if values.dim() == 2 else []
    return all(torch.allclose(row, row[:1].expand_as(row), atol=NEAR) for row in rows)


def _normalizing(target: Target, boundary: Boundary, literals: Literals) -> Boundary:
    """The boundary with the normalization of advantages that fits the loss; undecided if no normalization fits."""
    # A claimed ratio says how the gradient follows the advantages that are passed.
    boundary = replace(boundary, claims=replace(boundary.claims, ratio=None))
    trials = [
        _with_settings(boundary, {SETTING: name}, f"the loss normalizes its advantages, {name}")
        for name in NORMALIZATIONS
    ]
    for trial in trials:
        chosen = fitting_numbers(target, trial, missing_numbers(trial), literals)
        if chosen is not None:
            return _with_settings(trial, chosen, *_note(chosen, trial))
    if missing_numbers(boundary) == list(known := _clip_range(missing_numbers(boundary), literals.bounds) or {}):
        # Near a ratio of 1 no clip range has an effect: a normalization that fits there, with either sign, is right.
        for trial in (_with_settings(one, known) for one in trials):
            for sign in (1, -1):
                if fitting_numbers(target, trial, [], Literals(), unclipped_probes(trial), sign) is not None:
                    return trial
    return _without_formula(boundary, _why_normalized(boundary))


def _why_not_of_formula(boundary: Boundary) -> str:
    """The reason why the claimed formula does not fit the inputs of this loss; empty if it can be compared."""
    algorithm = value_of(boundary.claims.algorithm)
    if algorithm == "clipped value" and "old_value" not in boundary.reads:
        return (
            "not compared with the formula of clipped value, which needs old values, but the loss reads none: state "
            'algorithm "squared value", or bind a parameter to old_value'
        )
    if boundary.stage == "reward" and algorithm in REWARDED and "ref_logprob" in boundary.reads:
        return (
            f"not compared with the formula of {algorithm}, which has no KL, but the rewards have one: state the "
            'estimator of the KL instead, as in claims={"kl": "k1"}'
        )
    if boundary.stage != "policy-loss":
        return ""
    if "advantage" not in boundary.reads and algorithm not in WITHOUT_ADVANTAGES:
        why, other = "needs advantages, but the loss computes its own", "advantages"
    elif {"value", "returns"} <= boundary.reads:
        why, other = "has no value loss, but the loss has one", "value loss"
    elif "logits" in boundary.reads:
        why, other = "reads no logits, but the loss reads them", "log-probs"
    elif {"old_logprob", "rollout_logprob"} <= boundary.reads:
        why, other = "does not fit with any truncated weight of the rollout log-probs", "weight"
    else:
        return ""
    return (
        f"not compared with the formula of {algorithm}, which {why}: "
        f"check the function of the {other} and that of the policy loss separately, or state no algorithm"
    )


def _why_normalized(boundary: Boundary) -> str:
    return (
        f"not compared with the formula of {value_of(boundary.claims.algorithm)}: the loss normalizes its advantages "
        "in an unknown way. Pass a function with normalization off, or state no algorithm"
    )


def _why_undecided(boundary: Boundary, missing: list[str]) -> str:
    numbers = ", ".join(f'"{name}": ...' for name in missing)
    options = " ".join(f"--number {name}=NUMBER" for name in missing)
    return (
        f"not compared with the formula of {value_of(boundary.claims.algorithm)}, which needs "
        f"{' and '.join(missing)}: state numbers={{{numbers}}}, or {options} on the command line"
    )


def _why_wide_range(boundary: Boundary, wide: Mapping[str, float]) -> str:
    numbers = ", ".join(f'"{name}": {x:g}' for name, x in wide.items())
    words = " and ".join(f"{name} {x:g}" for name, x in wide.items())
    return (
        f"not compared with the formula of {value_of(boundary.claims.algorithm)}: in the code of the loss, {words} may "
        f"be a bound of the ratio instead of its distance from 1: if it is the distance, state numbers={{{numbers}}}"
    )


def _note(chosen: Mapping[str, float], boundary: Boundary) -> list[str]:
    """A note on the chosen numbers that differ from the settings; empty without such numbers."""
    known = {n: x for n, x in chosen.items() if boundary.settings["default"].get(n) != x}
    numbers = ", ".join(f'"{name}": {x:g}' for name, x in known.items())
    return (
        [f"the function agrees with its formula for these numbers: state them with numbers={{{numbers}}}"]
        if known
        else []
    )
