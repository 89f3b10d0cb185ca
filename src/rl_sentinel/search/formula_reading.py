"""Choose, among several accepted formulas of an output, the formula that fits over all cases."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import companions, inside_domain, observation_or_none

#: Case -> the accepted values of one output by name (none if the case does not determine them), and where they count.
Accepted = Callable[[Case], tuple[dict[str, Tensor], Tensor]]

#: When accepted values are compared with outputs, a distance below this share of the magnitude is rounding.
ROUNDING = 1e-4

#: Number of cases on which accepted values are compared with outputs. If the two best values fit equally well by then,
#: all cases are used.
ENOUGH = 32

#: Number of cases after which a value is chosen if only this value fits all of them: no other value can fit all cases.
SETTLED = 12

#: Number of fits that are cached: more than any boundary has outputs.
MOST_FITS = 128


class Fit(NamedTuple):
    """The name of the accepted value that fits best, and the number of accepted values.

    The name is empty if no value could be compared.
    """

    name: str
    among: int


#: Cached fits, each with its boundary, the key of the case and of the accepted values, and the output.
_cached: list[tuple[Boundary, str, str, Fit]] = []


def as_claimed(boundary: Boundary, output: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The accepted values that the boundary claims; all accepted values if it does not claim any.

    ``output_definitions`` gives the name of the value, or parts that the name must have, separated by ``; ``.

    Example:
        >>> from rl_sentinel.core.claims import claims
        >>> values = {"over rows, beside": torch.ones(()), "over tokens, beside": torch.ones(())}
        >>> said = claims("its docstring", output_definitions={"share": "over rows; beside"})
        >>> made = {"path": "mine.share", "stage": "metric", "steps": (), "outputs": {}}
        >>> list(as_claimed(Boundary(**made, claims=said), "share", values))
        ['over rows, beside']
    """
    definition = value_of(boundary.claims.output_definitions.get(output))
    if definition is None:
        return dict(values)
    if definition in values:
        return {definition: values[definition]}
    parts = definition.split("; ")
    return {name: value for name, value in values.items() if all(word in name for word in parts)}


def fitting(ask: Ask, case: Case, output: str, accepted: Accepted) -> Fit:
    """The accepted value that fits most cases under this setting; ties go to the smallest distance.

    The value is chosen once for a boundary and setting, not for each case, so that a quantity has the same definition
    on all cases.
    """
    function = getattr(accepted, "func", accepted)  # two laws accept different values of one output
    key = f"{function.__module__}.{function.__qualname__} {case.setting} {sorted(case.override.items(), key=str)}"
    for boundary, at, of, fit in _cached:
        if boundary is ask.boundary and (at, of) == (key, output):
            return fit
    fit = _best_fit(ask, case, output, accepted)
    _cached[:] = [*_cached[1 - MOST_FITS :], (ask.boundary, key, output, fit)]
    return fit


def _best_fit(ask: Ask, case: Case, output: str, accepted: Accepted) -> Fit:
    misses_of: dict[str, list[float]] = {}
    count = 0
    for number, companion in enumerate(companions(case)):
        if not number:
            continue  # the first case is the given one, which may be shrunk: it does not count
        asked = inside_domain(ask.boundary.domain, companion)
        values, where = accepted(asked)
        observation = observation_or_none(ask, asked) if values else None
        if observation is None:
            continue
        count += 1
        if (count > ENOUGH and not _tied(misses_of)) or (count > SETTLED and _settled(misses_of)):
            break
        for name, value in values.items():
            misses_of.setdefault(name, []).append(_misses(observation.values[output], value, where))
    return Fit(min(misses_of, key=lambda n: fmean(misses_of[n]), default=""), len(misses_of))


def _tied(misses_of: dict[str, list[float]]) -> bool:
    """Whether the two best accepted values fit equally well."""
    best = sorted(fmean(misses) for misses in misses_of.values())[:2]
    return len(best) > 1 and best[1] - best[0] < 1e-9


def _settled(misses_of: Mapping[str, list[float]]) -> bool:
    """Whether exactly one accepted value has fitted every case so far."""
    return sum(max(misses) < 1 for misses in misses_of.values()) == 1


def _misses(observed: Tensor, value: Tensor, where: Tensor) -> float:
    """1 (or slightly more) if the two values differ by more than rounding, else their difference.

    The size of a miss has almost no weight: a case without a fitting value must not decide between values that fit the
    other cases.
    """
    gap = distance(observed, value, where)
    size = value.abs().nan_to_num().max().item() if value.numel() else 0.0
    return 1 + min(gap, 1.0) / 1e6 if gap > ROUNDING * (1 + size) else min(gap, 1.0)


def distance(a: Tensor, b: Tensor, where: Tensor) -> float:
    """The largest difference at the positions that count; infinite if a value is NaN there, 0 without positions."""
    gap = (a.double() - b.double())[torch.broadcast_to(where, a.shape)]
    return gap.abs().nan_to_num(nan=float("inf")).max().item() if gap.numel() else 0.0
