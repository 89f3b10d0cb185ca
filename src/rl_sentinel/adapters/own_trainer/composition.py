"""Parse a recipe, select its components, and collect the claims and numbers of its functions."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.kit.numbers import numbers_by_name
from rl_sentinel.adapters.own_trainer.batch_episodes import TRAIN
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.user_claims import DROPPED, algorithm_of, known_algorithms, names_method, with_implied
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Stage
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claim_text import claims_from_text
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import nearest

#: The setting of every boundary.
SETTING = "recipe"

#: The stages of a recipe's estimator and loss.
STAGES: tuple[Stage, ...] = ("advantage", "policy-loss")

#: Keys that a recipe must have and that the signal does not depend on.
_IRRELEVANT: Mapping[str, Any] = {"out": "nowhere", "steps": 1, "environment": {"name": "none"}}

#: Parameters of this library's estimators, which users copy -> names in formulas.
_OF_LIBRARY: Mapping[str, str] = {"discount": "gamma", "decay": "lambda"}

#: Names in formulas of weights of a KL or an entropy.
_WEIGHTS = frozenset({"kl_loss_coef", "kl_coef", "entropy_coeff"})

#: Keys of ``CLAIMS`` that do not apply here: about a lone response, and about values at masked positions, which the
#: trainer sets.
_NOT_CLAIMED = frozenset({"lone", "masked-slots"})


@dataclass(frozen=True, slots=True)
class Composition:
    """A parsed recipe, its selected components, and the plain tables from which it was parsed."""

    target: Target
    tables: Mapping[str, Any]
    parts: tuple[str, ...]
    recipe: Any
    selection: Any

    def with_numbers(self, **numbers: Settings) -> "Composition":
        """A cached copy in which ``numbers`` replace those of their table; this object itself without numbers.

        Raises:
            ValueError: if a recipe cannot have these numbers.
        """
        if not any(numbers.values()):
            return self
        changed = {table: {**self.tables[table], **some} for table, some in numbers.items()}
        tables = {**self.tables, **changed}
        try:
            composed: Composition = self.target.cached(repr(tables), lambda: compose(self.target, tables, self.parts))
        except SentinelError as error:
            raise ValueError(str(error)) from None  # a number that a law sets, which a user has not written
        return composed


def compose(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...]) -> Composition:
    """Parse a recipe and select its components; ``parts`` are the names of the environment's reward parts."""
    recipe = target.call(f"{TRAIN}.config.recipe.parse_recipe", {**tables, **_IRRELEVANT}, where="recipe")
    environment = SimpleNamespace(parts=parts)
    selection = target.call(f"{TRAIN}.config.selection.select_components", recipe, environment)
    return Composition(target, tables, parts, recipe, selection)


def stated_claims(composed: Composition, table: str, stage: Stage) -> dict[str, str]:
    """``CLAIMS`` about the function that a table of the recipe names, with the algorithm as formulas name it.

    The algorithm may be the name of a method, such as Dr. GRPO. That of an estimator implies further claims, as in an
    audit of the function alone; those in ``CLAIMS`` replace them.

    The algorithm is left out if it exists only for the other function (the loss of an estimator, and the reverse). It
    is also left out if one file has both functions, and its name is an algorithm there and only a method here.

    Raises:
        SentinelError: if neither an estimator nor a loss has such an algorithm.
    """
    claims, name = dict(composed.selection.claims[STAGES.index(stage)]), composed.tables[table]["name"]
    stated = claims.pop("algorithm", "")
    kept = {key: text for key, text in claims.items() if text != DROPPED or ":" not in name}
    if not stated or ":" not in name:
        return kept | ({"algorithm": stated} if stated else {})
    others: Mapping[Stage, tuple[str, Stage]] = {
        "advantage": ("loss", "policy-loss"),
        "policy-loss": ("estimator", "advantage"),
    }
    other, other_stage = others[stage]
    found, more = algorithm_of(stated, stage)
    if not (found or algorithm_of(stated, other_stage)[0]):
        raise SentinelError(
            f"{table} {name!r} has algorithm {stated!r} in CLAIMS, which does not exist at stage {stage}: "
            f"{nearest(stated, known_algorithms(stage))}"
        )
    shared = composed.tables[other]["name"].rpartition(":")[0] == name.rpartition(":")[0]
    of_other = bool(algorithm_of(stated, other_stage)[0]) and not names_method(stated, other_stage)
    if not found or (shared and of_other and names_method(stated, stage)):
        return kept
    more = {key: text for key, text in more.items() if key != "aggregation"}
    if stage == "advantage":
        return with_implied(stage, found, more, claims) | {"algorithm": found}
    return more | kept | {"algorithm": found}


def settable_claims(claims: Mapping[str, str], names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The claims, except knobs that the function does not have and claims that do not apply to the trainer.

    Knobs get their name in formulas, from ``names``; a knob with several, such as both clip ranges, is left out.
    """
    valid = {key: text for key, text in claims.items() if key not in _NOT_CLAIMED and not key.startswith("knob:")}
    knobs = {key.partition(":")[2]: text for key, text in claims.items() if key.startswith("knob:")}
    return valid | {f"knob:{names[knob][0]}": text for knob, text in knobs.items() if len(names.get(knob, ())) == 1}


def numbers_of(function: Callable[..., object]) -> dict[str, Any]:
    """The numeric and boolean parameters of a function, with their values in the recipe."""
    parameters = inspect.signature(function).parameters.items()
    return {n: p.default for n, p in parameters if isinstance(p.default, bool | int | float) and n not in COLUMNS}


def formula_names(numbers: Settings, stage: Stage, *, own: bool) -> dict[str, tuple[str, ...]]:
    """For each number of a function, its names in formulas; its own name if it has none.

    Functions of this library (``own`` is False) use the names of formulas. The weight of a KL or of an entropy keeps
    its name: the KL of a recipe is not the function's.
    """
    names: dict[str, tuple[str, ...]] = {name: (name,) for name in numbers}
    known = {n: float(x) for n, x in numbers.items() if isinstance(x, int | float) and not isinstance(x, bool)}
    # Slightly different, so that equal numbers differ in the result.
    marked = {name: value * (1 + k * 1e-9) + k * 1e-15 for k, (name, value) in enumerate(known.items(), 1)}
    found = numbers_by_name(marked, stage) if own else {}
    for name, value in marked.items():
        inside = tuple(n for n, x in found.items() if x == value and n not in _WEIGHTS and n not in {*numbers} - {name})
        usual = _OF_LIBRARY.get(name, name) if own and stage == "advantage" else name
        names[name] = inside or (usual,)
    return names


def changed_numbers(numbers: Settings, names: Mapping[str, tuple[str, ...]], settings: Settings) -> Settings:
    """The numbers to which a law gave another value than the recipe's, under one of their names in ``settings``."""
    changed: dict[str, Any] = {}
    for name, number in numbers.items():
        values = [settings[n] for n in names[name] if settings[n] != number]
        changed |= {name: values[0]} if values else {}
    return changed


def claims_of(table: str, composed: Composition, texts: Mapping[str, str]) -> Claims:
    """Parse the claims ``texts`` about the function that a table of the recipe names.

    Raises:
        SentinelError: if ``CLAIMS`` of the function's module are wrong.
    """
    name = composed.tables[table]["name"]
    try:
        return claims_from_text(texts, f"{table} {name}: CLAIMS")
    except ValueError as error:
        raise SentinelError(f"{table} {name!r} has wrong CLAIMS ({error}): fix CLAIMS in the module") from error


def as_raised(error: Exception, _passed: Mapping[str, Any]) -> Exception:
    """The exception that the trainer wrapped in ``error``; ``error`` itself if it wraps no exception."""
    return error.__cause__ if isinstance(error.__cause__, Exception) else error
