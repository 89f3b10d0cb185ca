"""Numbers of a formula that the code of a recipe's function has, such as a clip range in a literal or a global."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.number_fit import with_fitted_numbers
from rl_sentinel.adapters.kit.number_trial import OPTIONAL, missing_numbers
from rl_sentinel.adapters.kit.numbers import numbers_by_name
from rl_sentinel.adapters.kit.numbers_in_code import literals, named_numbers
from rl_sentinel.adapters.own_trainer.composition import Composition, numbers_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claims import value_of


def with_numbers_of_code(composed: Composition, boundary: Boundary, function: Callable[..., Any]) -> Boundary:
    """The boundary of a function of the user's own, with the numbers of its formula that only its code has.

    If a number remains unknown, the function is not compared with the formula, and the reason says how to state the
    number in the recipe.
    """
    if boundary.claims.algorithm is None:
        return boundary
    ((setting, known),) = boundary.settings.items()
    usual = replace(boundary, settings={"default": known})
    by_name = numbers_by_name(named_numbers(function), boundary.stage)
    held = {name: by_name[name] for name in missing_numbers(usual) if name in by_name}
    if float(held.get("clip_high") or 0) <= 1:  # else a bound of the ratio, which the search for literals converts
        usual = replace(boundary, settings={"default": {**known, **held}})
    fitted = with_fitted_numbers(composed.target, usual, literals(function, numbers_of(function)))
    numbers = [name for name in missing_numbers(usual) if name not in OPTIONAL]
    reason = fitted.undecided
    if reason and numbers:
        table = "estimator" if boundary.stage == "advantage" else "loss"
        names = {"lambda": "lam"}  # a parameter cannot be called lambda
        keys = " and ".join(f"{table}.{names.get(name, name)}" for name in numbers)
        reason = (
            f"not compared with the formula of {value_of(boundary.claims.algorithm)}, which needs "
            f"{' and '.join(numbers)}: make them parameters of the function, and set {keys} in the recipe"
        )
    (step,), found = boundary.steps, fitted.settings["default"]
    unread = replace(step.arguments["settings"], unread=found.keys() - known.keys())  # type: ignore[type-var]  # AllSettings
    steps = (replace(step, arguments={**step.arguments, "settings": unread}),)
    return replace(fitted, steps=steps, settings={setting: found}, undecided=reason, notes=())
