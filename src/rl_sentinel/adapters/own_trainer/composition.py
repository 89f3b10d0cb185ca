"""Parse a recipe, select its components, and collect the claims and numbers of its functions."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from rl_sentinel.adapters.own_trainer.batch_episodes import TRAIN
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claim_text import claims_from_text
from rl_sentinel.core.claims import Claims
from rl_sentinel.core.errors import SentinelError

#: The setting of every boundary.
SETTING = "recipe"

#: Keys that a recipe must have and that the signal does not depend on.
_IRRELEVANT: Mapping[str, Any] = {"out": "nowhere", "steps": 1, "environment": {"name": "none"}}

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

    def with_numbers(self, table: str, numbers: Settings) -> "Composition":
        """A cached copy in which ``numbers`` replace those of a table; this object itself if there are no numbers."""
        if not numbers:
            return self
        tables = {**self.tables, table: {**self.tables[table], **numbers}}
        composed: Composition = self.target.cached(repr(tables), lambda: compose(self.target, tables, self.parts))
        return composed


def compose(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...]) -> Composition:
    """Parse a recipe and select its components; ``parts`` are the names of the environment's reward parts."""
    recipe = target.call(f"{TRAIN}.config.recipe.parse_recipe", {**tables, **_IRRELEVANT}, where="recipe")
    environment = SimpleNamespace(parts=parts)
    selection = target.call(f"{TRAIN}.config.selection.select_components", recipe, environment)
    return Composition(target, tables, parts, recipe, selection)


def settable_claims(claims: Mapping[str, str], numbers: Settings) -> dict[str, str]:
    """The claims, except knobs that the function does not have and claims that do not apply to the trainer."""
    valid = {key: text for key, text in claims.items() if key not in _NOT_CLAIMED}
    return {key: text for key, text in valid.items() if not key.startswith("knob:") or key.partition(":")[2] in numbers}


def numbers_of(function: Callable[..., object]) -> dict[str, Any]:
    """The numeric and boolean parameters of a function, with their values in the recipe."""
    parameters = inspect.signature(function).parameters.items()
    return {n: p.default for n, p in parameters if isinstance(p.default, bool | int | float) and n not in COLUMNS}


def changed_numbers(numbers: Settings, settings: Settings) -> Settings:
    """The numbers that a law set to a value other than the recipe's."""
    return {name: settings[name] for name, number in numbers.items() if settings[name] != number}


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
