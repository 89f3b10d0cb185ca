"""Read verl's registries of estimators and losses, including entries that other modules of its tree register."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Stage, Unbound
from rl_sentinel.core.errors import Unbindable

MODULE = "verl.trainer.ppo.core_algos"

ESTIMATORS, LOSSES = "ADV_ESTIMATOR_REGISTRY", "POLICY_LOSS_REGISTRY"

#: Registry -> the decorator that fills it, and the stage of its functions.
DECORATORS: Mapping[str, tuple[str, Stage]] = {
    ESTIMATORS: ("register_adv_est", "advantage"),
    LOSSES: ("register_policy_loss", "policy-loss"),
}

#: Folders of a checkout with code of training runs: the package and the recipes.
FOLDERS = ("verl", "recipe")


def registered(target: Target, table: str) -> dict[str, Callable[..., Any]] | None:
    """Registered name -> function; None if this release has no such registry.

    Modules of the tree that use the decorator are imported first. :func:`failed_registrations` reports modules that
    cannot be imported.

    Raises:
        Unbindable: if the module of the registry cannot be imported.
    """
    module = target.module(MODULE)
    registry = getattr(module, table, None)
    if registry is None:
        return None
    for path in _users(target.root, DECORATORS[table][0]):
        target.has(path)
    return {str(getattr(name, "value", name)): function for name, function in registry.items()}


def failed_registrations(target: Target, table: str) -> Iterator[Unbound]:
    """Modules that use the decorator of a registry but cannot be imported."""
    decorator, stage = DECORATORS[table]
    for path in _users(target.root, decorator):
        try:
            target.module(path)
        except Unbindable as why:
            yield Unbound.because(path, stage, why)


@cache
def _users(root: Path, decorator: str) -> tuple[str, ...]:
    """Dotted paths of the modules that use the decorator, except the module of the registry."""
    calls = f"@{decorator}(".encode(), f".{decorator}(".encode()
    modules = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            path = ".".join(file.relative_to(root).with_suffix("").parts)
            if path != MODULE and any(call in file.read_bytes() for call in calls):
                modules.append(path)
    return tuple(modules)
