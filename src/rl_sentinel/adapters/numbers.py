"""Parameters of a function of one's own that are numbers: what formulas call them, and what they are."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Scalar

#: Names of a number -> what formulas call it, and what is passed where there is no default.
_NUMBERS: Mapping[tuple[str, ...], tuple[tuple[str, ...], float]] = {
    ("cliprange", "clip_ratio", "clip_range", "clip_eps", "clip_epsilon", "eps_clip"): (("clip_low", "clip_high"), 0.2),
    ("cliprange_low", "clip_ratio_low", "clip_low", "eps_clip_low", "epsilon_low"): (("clip_low",), 0.2),
    ("cliprange_high", "clip_ratio_high", "clip_high", "eps_clip_high", "epsilon_high"): (("clip_high",), 0.28),
    ("clip_ratio_c", "clip_c", "ceiling"): (("ceiling",), 3.0),
    ("temperature", "tau_pos"): (("temperature",), 1.0),
    ("negative_temperature", "tau_neg"): (("negative_temperature",), 1.05),
    ("cliprange_value", "value_clip", "clip_range_value"): (("value_clip",), 0.5),
}

#: Names that mean a clip range in a policy loss, and what is added to a divisor elsewhere.
_EPSILON = ("epsilon", "eps")


def numbers(function: Callable[..., Any], stage: Stage) -> tuple[dict[str, Scalar], dict[str, float]]:
    """The numbers by the names of formulas, and those to pass, by parameter.

    A default is taken as it is and not passed; a range for both sides gives way to one for each.

    Example:
        >>> from rl_sentinel.adapters.numbers import numbers
        >>> numbers(lambda log_prob, cliprange, clip_ratio_high=0.3: log_prob, "policy-loss")
        ({'clip_low': 0.2, 'clip_high': 0.3}, {'cliprange': 0.2})
    """
    table = {name: about for names, about in _NUMBERS.items() for name in names}
    both = _NUMBERS[next(iter(_NUMBERS))]
    table |= dict.fromkeys(_EPSILON, both if stage == "policy-loss" else (("epsilon",), 1e-6))
    found: dict[str, Scalar] = {}
    passed: dict[str, float] = {}
    asked = [(n, p.default) for n, p in inspect.signature(inspect.unwrap(function)).parameters.items() if n in table]
    for name, default in sorted(asked, key=lambda pair: -len(table[pair[0]][0])):
        neutral, usual = table[name]
        if default is inspect.Parameter.empty:
            passed[name] = usual
        value = passed.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found |= dict.fromkeys(neutral, float(value))
    return found, passed
