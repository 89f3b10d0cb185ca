"""The recipe of a run: a strict TOML file, with ``key=value`` overrides from the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import pydantic
from pydantic import Field

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.phrasing import expected, nearest, shortened
from rl_sentinel.train.config.settings import (
    ChatSettings,
    CheckpointSettings,
    CompletionsSettings,
    Component,
    CorrectionSettings,
    Count,
    CriticSettings,
    EvaluationSettings,
    KLSettings,
    LossSettings,
    PolicySettings,
    RewardSettings,
    RolloutSettings,
    Seed,
    Table,
    UpdateSettings,
    WarmStartSettings,
)


class Recipe(Table):
    """A whole recipe.

    ``path`` replaces ``signal.path.loss_ready`` by the user's function, as ``pkg.module:function`` or
    ``file.py:function``.
    """

    out: str
    seed: Seed = 0
    steps: Count
    threads: Annotated[int, Field(ge=0)] = 1
    policy: PolicySettings = PolicySettings()
    warm: WarmStartSettings | None = None
    environment: Component
    chat: ChatSettings | None = None
    rollout: RolloutSettings
    reward: RewardSettings = RewardSettings()
    path: str = ""
    estimator: Component
    loss: LossSettings
    kl: KLSettings | None = None
    correction: CorrectionSettings = CorrectionSettings()
    update: UpdateSettings
    critic: CriticSettings | None = None
    evaluation: EvaluationSettings | None = None
    completions: CompletionsSettings = CompletionsSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe from a TOML file and apply overrides such as ``seed=1`` and ``update.rate=1e-3``.

    Raises:
        SentinelError: one line on a file that cannot be read, or on an invalid override or key.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SentinelError(f"recipe {path} cannot be read ({error.strerror}): name a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SentinelError(f"recipe {path} is malformed ({error}), expected TOML") from error
    for override in overrides:
        _apply_override(tables, override)
    return parse_recipe(tables, where=f"recipe {path}")


def parse_recipe(tables: Mapping[str, Any], *, where: str) -> Recipe:
    """Validate plain tables.

    Args:
        tables: as TOML or JSON holds them; a value of None is left out.
        where: the start of each error message.

    Raises:
        SentinelError: one line on a key that is unknown, missing, or of the wrong type or range.
    """
    try:
        return Recipe.model_validate(_as_plain_tables(tables))
    except pydantic.ValidationError as error:
        unknown = [e for e in error.errors() if e["type"] == "extra_forbidden"]
        first = (unknown or error.errors())[0]
        place = [str(p) for p in first["loc"]]
        key = ".".join(place)
        if unknown:
            raise SentinelError(f"{where}[{key}] is unknown, {nearest(place[-1], _keys_at(place[:-1]))}") from error
        if first["type"] == "missing":
            raise SentinelError(f"{where}[{key}] is missing, expected a value: add {place[-1]}") from error
        value = shortened(first["input"])
        if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
            keys = ["KEY"] if first["type"] == "dict_type" else _keys_at(place)[:2]
            example = f"{{ {' = ..., '.join(keys)} = ... }}"
            in_list = place[-1].isdecimal()
            example = f"{place[-2]} = [{{ name = ... }}]" if in_list else f"{place[-1]} = {example}"
            raise SentinelError(f"{where}[{key}] is {value}, expected a table, such as {example}") from error
        if first["type"] == "tuple_type":
            example = f"{place[-1]} = [{_item_at(place)}]"
            raise SentinelError(f"{where}[{key}] is {value}, expected a list, such as {example}") from error
        raise SentinelError(f"{where}[{key}] is {value}{expected(first['msg'])}") from error


def _apply_override(tables: dict[str, Any], text: str) -> None:
    if len(text.splitlines()) > 1:
        raise SentinelError(
            f"override {shortened(text)} has a line break, expected key=value: pass one override per argument"
        )
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise SentinelError(f"override is {shortened(text)}, expected key=value, such as seed=1 or update.rate=1e-3")
    table = tables
    for part in key.split(".")[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            kind = "is a list, which the file sets" if isinstance(table, list) else "has a plain value"
            raise SentinelError(f"override {shortened(text)} sets a key in {part}, expected a table: {part} {kind}")
    try:
        table[key.split(".")[-1]] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[key.split(".")[-1]] = value


def _as_plain_tables(value: Any) -> Any:  # noqa: ANN401 - a value of TOML or JSON
    """Convert lists to tuples, because a recipe is frozen; drop None, which a JSON dump has for absent keys."""
    if isinstance(value, Mapping):
        return {key: _as_plain_tables(item) for key, item in value.items() if item is not None}
    return tuple(_as_plain_tables(x) for x in value) if isinstance(value, list) else value


def _keys_at(location: Sequence[str]) -> list[str]:
    """The keys that the recipe's table at a path such as ``("policy", "lora")`` can have."""
    return list(_table_at(location).model_fields)


def _item_at(location: Sequence[str]) -> str:
    """An item of the recipe's list at a path such as ``("correction", "reject")``, as it is written in TOML."""
    kinds = get_args(_table_at(location[:-1]).model_fields[location[-1]].annotation)
    return "{ name = ... }" if Component in kinds else '"..."' if str in kinds else "..."


def _table_at(location: Sequence[str]) -> type[pydantic.BaseModel]:
    table: type[pydantic.BaseModel] = Recipe
    for part in location:
        field = table.model_fields.get(part)
        kinds = [] if field is None else [field.annotation, *get_args(field.annotation)]
        table = next((k for k in kinds if isinstance(k, type) and issubclass(k, pydantic.BaseModel)), table)
    return table
