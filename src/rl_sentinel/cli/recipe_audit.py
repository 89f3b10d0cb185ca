"""Audit the trainer with a recipe: the fields of the request, and the user's functions that the recipe names."""

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.config.recipe import Recipe, load_recipe
from rl_sentinel.train.config.selection import select_components
from rl_sentinel.train.config.user_code import import_object

#: The target of an audit of a recipe.
TRAINER = "rl_sentinel.train"

#: Tables of a recipe that say how the signal is computed.
_TABLES = frozenset({"rollout", "reward", "path", "estimator", "loss", "kl", "correction", "update", "critic"})


def recipe_options(path: Path, targets: Sequence[TargetSpec]) -> dict[str, Any]:
    """The fields of a request for the recipe of a file.

    Raises:
        SentinelError: one line if the target is not the trainer, or the recipe is wrong.
    """
    if [t.framework.name for t in targets] != [TRAINER]:
        named = ", ".join(t.text for t in targets) or "the functions of pyproject.toml"
        raise SentinelError(f"--recipe is used with {named}, expected {TRAINER}: audit {TRAINER}, or drop --recipe")
    recipe = load_recipe(path)
    return request_fields(recipe, getattr(select_components(recipe).environment, "parts", ()))


def request_fields(recipe: Recipe, parts: Sequence[str]) -> dict[str, Any]:
    """The fields of a request for a recipe; ``parts`` are the names of the parts of its environment's reward."""
    tables = recipe.model_dump(mode="json", include=set(_TABLES), exclude_none=True)
    return {
        "recipe": json.dumps({"tables": _with_absolute_files(tables), "parts": list(parts)}, sort_keys=True),
        "search_path": tuple(str(Path(p).resolve()) for p in sys.path),
    }


def own_functions(recipe: Recipe) -> dict[str, str]:
    """The user's functions that compute the rewards and the signal, each with the SHA-256 of its file."""
    named = [("path", recipe.path), ("estimator", recipe.estimator.name), ("loss", recipe.loss.name)]
    named += [("environment", recipe.environment.name), *(("reward", name) for name in _reward_functions(recipe))]
    return {f"{key} {reference}": _digest(key, reference) for key, reference in named if ":" in reference}


def _reward_functions(recipe: Recipe) -> list[str]:
    """The functions of ``environment.reward``, which other environments than ``jsonl`` may use for anything."""
    if recipe.environment.name != "jsonl":
        return []
    rewards = recipe.environment.parameters["reward"]
    return [rewards] if isinstance(rewards, str) else [table["function"] for table in rewards]


def _digest(key: str, reference: str) -> str:
    named = inspect.unwrap(import_object(key, reference))
    try:
        file = inspect.getsourcefile(named)
    except TypeError:  # an instance, such as a partial: the file that holds it
        module = reference.rpartition(":")[0]
        file = module if module.endswith(".py") else sys.modules[module].__file__
    return hashlib.sha256(Path(file or "").expanduser().read_bytes()).hexdigest()


def _with_absolute_files(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with absolute paths of functions' files, because a worker runs in another folder."""
    absolute = {**tables, "path": _absolute(str(tables.get("path", "")))}
    return absolute | {key: {**tables[key], "name": _absolute(tables[key]["name"])} for key in ("estimator", "loss")}


def _absolute(reference: str) -> str:
    file, colon, name = reference.rpartition(":")
    return f"{Path(file).expanduser().resolve()}{colon}{name}" if file.endswith(".py") else reference
