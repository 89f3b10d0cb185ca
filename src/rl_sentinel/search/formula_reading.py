"""Choose among several accepted formulas of an output the one that fits over all cases."""

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import answered, companions

#: What is accepted for one output on a case: values by name, and where they count; none where nothing is said.
Accepted = Callable[[Case], tuple[dict[str, Tensor], Tensor]]

#: A distance below this share of the magnitudes is rounding, when accepted values are weighed against each other.
ROUNDING = 1e-4

#: Cases that accepted values are weighed on, of those that the boundary answers and something is accepted
#: for; where two are as good as each other by then, all are.
ENOUGH = 32

#: Cases after which one that fits them all, where no other does, is settled on: none of the others can fit them all.
SETTLED = 12

#: Answers that are remembered: more than any boundary has outputs.
KEPT = 128


class Fit(NamedTuple):
    """The accepted value that fits best: its name, and how many there are. No name where nothing is accepted."""

    name: str
    among: int


_last: list[tuple[Boundary, str, str, Fit]] = []


def as_claimed(boundary: Boundary, output: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The accepted values that the boundary claims; all of them if it does not say which.

    ``output_definitions`` gives the name of the value, or words, with ``; `` between them, that it must have.

    Example:
        >>> from rl_sentinel.core.claims import claims
        >>> values = {"over rows, beside": torch.ones(()), "over tokens, beside": torch.ones(())}
        >>> said = claims("its docstring", output_definitions={"share": "over rows; beside"})
        >>> made = {"path": "mine.share", "stage": "metric", "steps": (), "outputs": {}}
        >>> list(as_claimed(Boundary(**made, claims=said), "share", values))
        ['over rows, beside']
    """
    said = value_of(boundary.claims.output_definitions.get(output))
    if said is None:
        return dict(values)
    if said in values:
        return {said: values[said]}
    words = said.split("; ")
    return {name: value for name, value in values.items() if all(word in name for word in words)}


def fitting(ask: Ask, case: Case, output: str, accepted: Accepted) -> Fit:
    """The accepted value that fits most cases under this setting; ties go to the smallest distance.

    It is chosen once for a boundary and setting, not for each case, so that a quantity has the same
    definition on all cases.
    """
    whose = getattr(accepted, "func", accepted)  # two laws accept different values of one output
    key = f"{whose.__module__}.{whose.__qualname__} {case.setting} {sorted(case.override.items(), key=str)}"
    for boundary, at, of, found in _last:
        if boundary is ask.boundary and (at, of) == (key, output):
            return found
    found = _weighed(ask, case, output, accepted)
    _last[:] = [*_last[1 - KEPT :], (ask.boundary, key, output, found)]
    return found


def _weighed(ask: Ask, case: Case, output: str, accepted: Accepted) -> Fit:
    wrong: dict[str, list[float]] = {}
    weighed = 0
    for number, other in enumerate(companions(case)):
        if not number:
            continue  # the case at hand may be shrunk: it has no say
        values, where = accepted(other)
        seen = answered(ask, other) if values else None
        if seen is None:
            continue
        weighed += 1
        if (weighed > ENOUGH and not _tied(wrong)) or (weighed > SETTLED and _settled(wrong)):
            break
        for name, value in values.items():
            wrong.setdefault(name, []).append(_misses(seen.values[output], value, where))
    return Fit(min(wrong, key=lambda n: fmean(wrong[n]), default=""), len(wrong))


def _tied(wrong: dict[str, list[float]]) -> bool:
    """Whether the two best ones fit equally well."""
    best = sorted(fmean(misses) for misses in wrong.values())[:2]
    return len(best) > 1 and best[1] - best[0] < 1e-9


def _settled(wrong: Mapping[str, list[float]]) -> bool:
    """Whether exactly one has fitted every case so far."""
    return sum(max(misses) < 1 for misses in wrong.values()) == 1


def _misses(seen: Tensor, value: Tensor, where: Tensor) -> float:
    """1 where the two differ by more than rounding, else the difference.

    How far a miss is counts for next to nothing: a case that no value fits must not choose between those that fit the
    others.
    """
    gap = distance(seen, value, where)
    size = value.abs().nan_to_num().max().item() if value.numel() else 0.0
    return 1 + min(gap, 1.0) / 1e6 if gap > ROUNDING * (1 + size) else min(gap, 1.0)


def distance(one: Tensor, other: Tensor, where: Tensor) -> float:
    """The largest difference where it counts; infinite where one is NaN."""
    gap = (one.double() - other.double())[torch.broadcast_to(where, one.shape)]
    return gap.abs().nan_to_num(nan=float("inf")).max().item() if gap.numel() else 0.0
