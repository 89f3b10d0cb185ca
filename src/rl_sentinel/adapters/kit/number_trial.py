"""Try values for the unknown numbers of a claimed formula, until the function fits the formula."""

import math
from collections.abc import Mapping
from itertools import islice, product

from rl_sentinel.adapters.kit.formula_fit import NEAR, distance_to_reading, probes_of
from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.kit.numbers_in_code import Literals
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Scalar, Settings
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.algorithms import known_advantages
from rl_sentinel.formulas.kl_tokens import SHAPED
from rl_sentinel.formulas.temporal import TEMPORAL
from rl_sentinel.search.claimed_formulas import known_output, references

#: Values to try where the code has no literal for a number.
_USUAL: Mapping[str, tuple[float, ...]] = {
    "clip_low": (0.2, 0.1, 0.3),
    "clip_high": (0.2, 0.28, 0.1, 0.3),
    "kl_loss_coef": (0.001, 0.01, 0.04, 0.1),
    "kl_coef": (0.001, 0.01, 0.04, 0.1),
}

#: Numbers that a formula has a default for.
OPTIONAL = frozenset({"epsilon", "temperature"})

#: Numbers that are left out at first, because the formula has a form without them.
_TRIED_WITHOUT = OPTIONAL | {"gamma", "lambda", "value_clip"}

#: A literal up to this size may be the offset of a divisor, but not a discount.
_OFFSET = 0.01

#: Maximum number of combinations.
_MOST = 600


def fits_formula(target: Target, boundary: Boundary) -> bool:
    """Whether the function computes a reading of its claimed formula on small batches.

    False if the formula needs a number that is not known.
    """
    if boundary.claims.algorithm is None or not set(missing := missing_numbers(boundary)) <= _TRIED_WITHOUT:
        return False
    try:
        return fitting_numbers(target, boundary, missing, Literals()) is not None
    except Exception:  # noqa: BLE001 - without a reading on these batches, nothing fits
        return False


def is_temporal(boundary: Boundary) -> bool:
    """Whether the claimed algorithm gives credit over time."""
    return boundary.stage == "advantage" and value_of(boundary.claims.algorithm) in TEMPORAL


def missing_numbers(boundary: Boundary) -> list[str]:
    """The numbers of the claimed formula that are not known."""
    settings = boundary.settings["default"]
    if boundary.stage == "advantage" and known_advantages(boundary):
        names = ["gamma", "lambda"] if is_temporal(boundary) else ["epsilon"]
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


def candidates(name: str, literals: tuple[float, ...]) -> tuple[float, ...]:
    """The values to try for a number: the suitable literals (and 1 for a discount), or else usual values.

    A clip range may be written as its bounds, 0.8 and 1.2.
    """
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


def fitting_numbers(  # noqa: PLR0913 - all that a trial needs
    target: Target,
    boundary: Boundary,
    missing: list[str],
    literals: Literals,
    probes: list[Batch] | None = None,
    sign: int = 1,
) -> dict[str, float] | None:
    """The values of the missing numbers with which a reading of the formula is nearest to the function's result.

    Empty if the formula fits without the missing numbers; None if the function fails or no values are near enough.

    Args:
        target: where the function is looked up.
        boundary: its boundary.
        missing: the numbers that its formula needs.
        literals: the numbers in its code.
        probes: the batches; by default, batches that distinguish clip ranges.
        sign: -1 to compare the negated result.
    """
    settings = dict(boundary.settings["default"])
    try:
        observed = [(batch, outputs_on(target, boundary, batch)) for batch in probes or probes_of(boundary)]
    except Exception:  # noqa: BLE001 - a function that fails here is judged by the laws
        return None

    def error(chosen: Mapping[str, float]) -> float:
        trial: dict[str, Scalar] = {**settings, **chosen}
        try:
            return max(
                distance_to_reading(boundary, name, sign * value, batch, trial)
                for batch, values in observed
                for name, value in values.items()
            )
        except (IndexError, RuntimeError, KeyError):  # a result in another shape, or a formula that needs a number
            return math.inf

    if set(missing) <= _TRIED_WITHOUT and error({}) <= NEAR:
        return {}
    options = islice(product(*(candidates(name, literals.floats) for name in missing)), _MOST)
    trials = [dict(zip(missing, values, strict=True)) for values in options]
    # The nearest and not the first: the two ranges of GSPO, 3e-4 and 4e-4, may both be near enough.
    errors = [error(chosen) for chosen in trials]
    least = min(errors, default=math.inf)
    return trials[errors.index(least)] if least <= NEAR else None
