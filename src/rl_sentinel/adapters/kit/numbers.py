"""Map numeric parameters of a user's function to the names and values of numbers in formulas."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from rl_sentinel.adapters.kit.roles import parameters_of, role_of
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Scalar

#: Role of a number -> its names in formulas, and the value to pass if the parameter has no default.
_NUMBERS: Mapping[str, tuple[tuple[str, ...], float]] = {
    "clip": (("clip_low", "clip_high"), 0.2),
    "clip_low": (("clip_low",), 0.2),
    "clip_high": (("clip_high",), 0.28),
    "clip_c": (("ceiling",), 3.0),
    "temperature": (("temperature",), 1.0),
    "negative_temperature": (("negative_temperature",), 1.05),
    "value_clip": (("value_clip",), 0.5),
    "epsilon": (("epsilon",), 1e-6),
    "fixed_length": (("length",), 8),
}


#: All names of numbers in formulas.
FORMULA_NAMES = frozenset(name for names, _ in _NUMBERS.values() for name in names) | {
    *("kl_loss_coef", "kl_coef", "entropy_coeff", "gamma", "lambda")
}

#: Name of the number of responses per prompt, for a function whose code has it, and groups adjacent responses.
GROUP_SIZE = "group_size"

#: Name of this number for a function that expects the responses of a prompt as many rows apart as there are prompts.
STRIDED_GROUP_SIZE = "strided_group_size"

#: Names of the numbers that a user can state.
STATED_NAMES = FORMULA_NAMES | {GROUP_SIZE, STRIDED_GROUP_SIZE}

#: Roles of parameters that are numbers: those of formulas, and the number of accumulated micro-batches.
NUMBERS = (*_NUMBERS, "kl_weight", "entropy_weight", "accumulation")

#: Role of a number whose default may leave out a part of the formula -> the role of the column that this part reads.
OPTIONAL_PARTS: Mapping[str, str] = {
    "kl_weight": "ref_logprob",
    "entropy_weight": "entropy",
    "value_clip": "old_value",
    "ratio_bound": "advantage",
    "clip_c": "advantage",
}

#: Roles of ``OPTIONAL_PARTS`` whose part is left out at 0 too, not only at None.
_WEIGHTS = ("kl_weight", "entropy_weight")

#: Role -> the discount to pass if the default is missing or 1: a wrong exponent has an effect only below 1.
DISCOUNTS: Mapping[str, float] = {"gamma": 0.9, "lambda": 0.8}

#: How much wider the upper clip range is than an equal lower one: 0.28 beside 0.2.
_WIDER = 1.4

#: A smaller ``epsilon`` of a policy loss is the offset of a divisor, not a clip range; that of GSPO is 3e-4.
SMALLEST_CLIP = 1e-4

#: Temperature for functions of logits: at their usual default of 1, a temperature that is ignored would not show.
_TEMPERATURE = 0.7


def numbers(function: Callable[..., Any], stage: Stage) -> tuple[dict[str, Scalar], dict[str, float]]:
    """The numbers of a function by their names in formulas, and the values to pass to its parameters.

    Example:
        >>> from rl_sentinel.adapters.kit.numbers import numbers
        >>> numbers(lambda log_prob, cliprange, clip_ratio_high=0.3: log_prob, "policy-loss")
        ({'clip_low': 0.2, 'clip_high': 0.3}, {'cliprange': 0.2})
    """
    return numbers_of({name: p.default for name, p in parameters_of(function).items()}, stage)


def numbers_by_name(values: Mapping[str, float], stage: Stage) -> dict[str, Scalar]:
    """The numbers by their names in formulas, for numbers that code reads by these names.

    Example:
        >>> from rl_sentinel.adapters.kit.numbers import numbers_by_name
        >>> numbers_by_name({"eps_clip": 0.1, "lam": 0.95}, "policy-loss")
        {'clip_low': 0.1, 'clip_high': 0.1, 'lambda': 0.95}
    """
    numbers, passed = numbers_of(values, stage)
    numbers |= {role: values[name] for name in passed for role in [role_of(name)]}
    return numbers | {role_of(name): x for name, x in values.items() if role_of(name) in ("gamma", "lambda")}


def formula_names(role: str) -> tuple[str, ...]:
    """The names that the number of this role has in formulas, at any stage; empty for a role without such names."""
    weights = {
        "kl_weight": ("kl_loss_coef", "kl_coef"),
        "entropy_weight": ("entropy_coeff",),
        "ratio_bound": ("ceiling",),
    }
    return weights.get(role) or _NUMBERS.get(role, ((), 0.0))[0]


def _offsets(defaults: Mapping[str, object]) -> list[str]:
    """The parameters of a policy loss named like ``epsilon`` that are the offset of a divisor."""
    clipped = any(role_of(name) in ("clip", "clip_low") for name in defaults)
    names = [name for name in defaults if role_of(name) == "epsilon"]
    tiny = [n for n in names if isinstance(x := defaults[n], int | float) and x < SMALLEST_CLIP]
    return [n for n in names if defaults[n] is not inspect.Parameter.empty] if clipped else tiny


def visible_numbers(
    numbers: Mapping[str, float], columns: Collection[str], kept: Collection[str], *, of_logits: bool = False
) -> dict[str, float]:
    """New values for numbers in code whose current values hide their effect.

    Such values are discounts of 1, weights of 0, equal clip ranges and, with ``of_logits``, a temperature of 1.

    Args:
        numbers: name in the code -> number.
        columns: the columns that the function reads: a weight whose column is not among them is unchanged.
        kept: numbers, by their names in formulas, that the user states.
        of_logits: the function computes log-probs from logits.

    Example:
        >>> from rl_sentinel.adapters.kit.numbers import visible_numbers
        >>> visible_numbers({"gamma": 1.0, "beta": 0.0, "eps_low": 0.2, "eps_high": 0.2}, {"advantage"}, ())
        {'gamma': 0.9, 'eps_high': 0.28}
    """
    weights = {"kl_weight": 0.04, "entropy_weight": 0.01}
    lows = [x for name, x in numbers.items() if role_of(name) == "clip_low"]
    visible = dict[str, float]()
    for name, x in numbers.items():
        role = role_of(name)
        if {role, *formula_names(role)} & set(kept):
            continue
        if role in DISCOUNTS and x == 1:
            visible[name] = DISCOUNTS[role]
        elif role == "temperature" and x == 1 and of_logits:
            visible[name] = _TEMPERATURE
        elif role in weights and x == 0 and OPTIONAL_PARTS[role] in columns:
            visible[name] = weights[role]
        elif role == "clip_high" and x in lows:
            visible[name] = round(_WIDER * x, 12)
    return visible


def _unset_clip_ranges(defaults: Mapping[str, object]) -> list[str]:
    """The clip ranges to pass if all of them are None: the separate ranges if there are any, else the common range."""
    ranges = {name: x for name, x in defaults.items() if role_of(name) in ("clip", "clip_low", "clip_high")}
    if any(x is not None for x in ranges.values()):
        return []
    return [name for name in ranges if role_of(name) != "clip"] or list(ranges)


def _leaves_out(role: str, default: object) -> bool:
    """Whether a default leaves out a part of the formula."""
    return (role in OPTIONAL_PARTS and default is None) or (role in _WEIGHTS and default == 0)


def numbers_of(
    defaults: Mapping[str, object], stage: Stage, changeable: Collection[str] = ()
) -> tuple[dict[str, Scalar], dict[str, float]]:
    """Like :func:`numbers`, for parameters or configuration fields with these ``defaults``.

    A parameter with a default keeps it and is not passed, with two exceptions: the temperature of a function of logits,
    and a ``changeable`` parameter whose default hides its effect (a weight of 0, an optional bound of None, clip
    ranges that are all None, equal upper and lower clip ranges, a temperature of 1 in a policy loss with one
    temperature). Separate clip ranges override a common range. ``epsilon`` is a clip range in a policy loss; it is the
    offset of a divisor in other functions, if it is tiny, or if there is a clip range with another name.
    """
    table = {
        **_NUMBERS,
        "epsilon": _NUMBERS["clip" if stage == "policy-loss" else "epsilon"],
        "kl_weight": (("kl_loss_coef" if stage == "policy-loss" else "kl_coef",), 0.04),
    }
    if stage == "policy-loss":  # elsewhere ``delta`` is a temporal difference
        table["ratio_bound"] = table["clip_c"]
        table["entropy_weight"] = (("entropy_coeff",), 0.01)
    if stage == "value-loss" and not any(role_of(name) == "value_clip" for name in defaults):
        table["clip"] = (("value_clip",), 0.2)
    if stage == "batch":
        table["temperature"] = (("temperature",), _TEMPERATURE)
    offsets = _offsets(defaults) if stage == "policy-loss" else ()
    known = [(name, table[role_of(name)]) for name in defaults if role_of(name) in table and name not in offsets]
    lows = [x for name, x in defaults.items() if role_of(name) == "clip_low" and isinstance(x, float)]
    unset = _unset_clip_ranges(defaults)
    gated = any(role_of(name) == "negative_temperature" for name in defaults)  # SAPO's gate, with two temperatures
    values: dict[str, Scalar] = {}
    passed: dict[str, float] = {}
    for name, (formula_names, usual) in sorted(known, key=lambda pair: -len(pair[1][0])):
        default, role = defaults[name], role_of(name)
        of_logits = stage == "batch" and formula_names == ("temperature",)
        if (
            default is inspect.Parameter.empty
            or of_logits
            or (name in changeable and (_leaves_out(role, default) or name in unset))
        ):
            passed[name] = usual
        elif name in changeable and role == "clip_high" and default in lows:
            passed[name] = round(_WIDER * lows[0], 12)
        elif name in changeable and role == "temperature" and default == 1 and stage == "policy-loss" and not gated:
            passed[name] = _TEMPERATURE
        value = passed.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            values |= dict.fromkeys(formula_names, float(value))
    return values, passed
