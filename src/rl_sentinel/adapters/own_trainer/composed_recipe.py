"""Boundaries of the trainer for one recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.own_trainer.advantages import advantages
from rl_sentinel.adapters.own_trainer.composition import compose
from rl_sentinel.adapters.own_trainer.losses import loss
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary


def boundaries(target: Target, tables: Mapping[str, Any], parts: tuple[str, ...] = ()) -> Iterator[Boundary]:
    """Boundaries of the advantages and the loss of a recipe.

    Args:
        target: the tree that contains the trainer.
        tables: the tables of the recipe that determine how the signal is computed.
        parts: names of the environment's reward parts.

    Raises:
        SentinelError: if ``CLAIMS`` of a module are wrong.
    """
    without_kl = {name: table for name, table in tables.items() if name != "kl"}
    kl_in_reward = bool((tables.get("kl") or {}).get("reward"))
    yield advantages(compose(target, tables if kl_in_reward else without_kl, parts))
    yield loss(compose(target, tables, parts))
