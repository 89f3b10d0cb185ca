"""Validate the options of ``check``; the error names the first wrong option in one line."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

from rl_sentinel.adapters.kit.numbers import STATED_NAMES
from rl_sentinel.adapters.user_boundary import STAGES
from rl_sentinel.adapters.user_claims import claims_of
from rl_sentinel.audit.findings import LEVELS
from rl_sentinel.audit.law_codes import codes
from rl_sentinel.audit.sandbox.request import MOST_CASES
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.errors import InputError, SentinelError
from rl_sentinel.core.phrasing import nearest, shortened

#: Seeds must be below this number: the number of a case is added to the seed, and torch must accept the sum.
_SEEDS = 2**62


def validate_stage(stage: object, level: object) -> None:
    """Require a known stage and level.

    Raises:
        InputError: if the stage or the level is unknown.
    """
    if not isinstance(stage, str) or stage not in STAGES:
        raise InputError(
            f"stage is {shortened(stage)}, expected one of {', '.join(STAGES)}: what your function computes"
        )
    if not isinstance(level, str) or level not in LEVELS:
        raise InputError(f"level is {shortened(level)}, expected one of {', '.join(LEVELS)}")


def validate_search(seed: object, budget: object) -> None:
    """Require a seed and a number of random cases that are in range.

    Raises:
        InputError: if one of them is not a whole number or is out of range.
    """
    if not isinstance(budget, int) or isinstance(budget, bool) or not 2 <= budget <= MOST_CASES:
        raise InputError(
            f"budget is {shortened(budget)}, expected a whole number from 2 to {MOST_CASES}: random cases per law"
        )
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < _SEEDS:
        raise InputError(f"seed is {shortened(seed)}, expected a whole number from 0 to {_SEEDS - 1}")


def law_codes(name: str, laws: object) -> tuple[str, ...]:
    """Convert a list of law codes or law names to codes; ``name`` is the option that the error names.

    Raises:
        InputError: if it is not a list of known codes or names.
    """
    if not isinstance(laws, Sequence) or isinstance(laws, str) or not all(isinstance(x, str) for x in laws):
        raise InputError(f'{name} is {shortened(laws)}, expected a list of codes, as in {name}=["MSK001"]')
    try:
        return codes(laws)
    except SentinelError as error:
        raise InputError(f"{name}: {error}") from error


def chosen_laws(laws: object) -> tuple[str, ...]:
    """The codes of the laws to check; None gives an empty tuple, which means all laws.

    Raises:
        InputError: if the list is empty, or as for :func:`law_codes`.
    """
    if laws is None:
        return ()
    chosen = law_codes("laws", laws)
    if not chosen:
        raise InputError(f'laws is {laws!r}, expected at least one code, as in laws=["MSK001"], or None for all laws')
    return chosen


def parsed_claims(stage: str, algorithm: object, claims: object) -> Claims:
    """The claims that the user states and the claims that the algorithm implies.

    Raises:
        InputError: if the algorithm, a claim or its value is unknown.
    """
    algorithm = "" if algorithm is None else algorithm
    if not isinstance(algorithm, str):
        raise InputError(f'algorithm is {shortened(algorithm)}, expected a name, as in algorithm="grpo"')
    table = _table("claims", claims, 'claims={"scope": "group"}')
    try:
        return claims_of(STAGES[stage].stage, algorithm, cast("dict[str, str | bool | None]", table))
    except SentinelError as error:
        raise InputError(str(error).removeprefix("--")) from error


def bindings(bind: object) -> dict[str, object]:
    """The bindings by parameter; empty for None."""
    return _table("bind", bind, 'bind={"rewards": "reward"}')


def parsed_numbers(numbers: object) -> dict[str, float]:
    """The numbers by their names in formulas; empty for None.

    Raises:
        InputError: if a name is unknown, or a value is not a finite number.
    """
    table = _table("numbers", numbers, 'numbers={"clip_low": 0.2}')
    parsed: dict[str, float] = {}
    for name, value in table.items():
        if name not in STATED_NAMES:
            raise InputError(f"numbers has {name!r}, which no formula reads: {nearest(name, sorted(STATED_NAMES))}")
        if not _is_finite(value):
            raise InputError(f"numbers[{name}] is {shortened(value)}, expected a finite number")
        parsed[name] = float(cast("float", value))
    return parsed


def _is_finite(value: object) -> bool:
    """Whether a value is a finite number (and not a bool) that a float can hold."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _table(name: str, value: object, example: str) -> dict[str, object]:
    """Require a dict whose keys are strings; None gives an empty dict."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} is {shortened(value)}, expected a dict with strings as keys, as in {example}")
    return dict(value)
