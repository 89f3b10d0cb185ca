"""Which run it is: the keys of a recipe that change its numbers, and their digest."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rl_sentinel.train.config.recipe import Recipe

#: Keys and tables that another may have who goes on in the same folder: where a run is computed, how fast and how long.
FREE = frozenset({"out", "rollout.url", "checkpoint", "steps"})


def identity(recipe: Recipe) -> dict[str, Any]:
    """The keys that change a run's numbers, with their tables' names, but for those at their defaults.

    ``steps`` is one where the learning rate falls towards the last of them, and ``threads`` always: sums of several
    round apart, the warm start's among them.

    Example:
        >>> from rl_sentinel.train.run.fingerprint import identity
        >>> from rl_sentinel.train.config.recipe import Recipe, Update
        >>> update = Update(prompts=2, rate=0.5)
        >>> recipe = Recipe.model_construct(out="runs/a", seed=3, steps=9, update=update)
        >>> identity(recipe)
        {'seed': 3, 'update.prompts': 2, 'update.rate': 0.5}
    """
    free = FREE if recipe.update.schedule == "constant" else FREE - {"steps"}
    told = recipe.model_dump(mode="json", exclude_defaults=True)
    return {key: value for key, value in _flat(told).items() if key not in free and key.partition(".")[0] not in free}


def differing(one: Recipe, two: Recipe) -> list[str]:
    """The keys in which two recipes have other numbers, in the order of their names."""
    first, second = identity(one), identity(two)
    return sorted(key for key in {*first, *second} if first.get(key) != second.get(key))


def digest(recipe: Recipe) -> str:
    """Of the keys that change a run's numbers."""
    return hashlib.sha256(json.dumps(identity(recipe), sort_keys=True).encode()).hexdigest()


def _flat(told: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in told.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {before + key: value}
    return found
