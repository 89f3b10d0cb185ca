"""The boundaries of the trainer as one recipe composes it."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.own_trainer.advantages import advantages
from rl_sentinel.adapters.own_trainer.composition import compose
from rl_sentinel.adapters.own_trainer.losses import loss
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary


def boundaries(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...] = ()) -> Iterator[Boundary]:
    """The advantages and the loss of a recipe.

    Args:
        target: the tree that has the trainer.
        tables: of the recipe, those that say how the signal is computed.
        parts: the names of the parts of the environment's reward.

    Raises:
        SentinelError: if a user's module states a claim that does not exist.
    """
    without_kl = {name: table for name, table in tables.items() if name != "kl"}
    priced = bool((tables.get("kl") or {}).get("reward"))
    yield advantages(compose(target, tables if priced else without_kl, parts))
    yield loss(compose(target, tables, parts))
