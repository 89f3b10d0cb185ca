"""verl's registries, with entries that other modules of its tree register."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Stage, Unbound
from rl_sentinel.core.errors import Unbindable

MODULE = "verl.trainer.ppo.core_algos"

ESTIMATORS, LOSSES = "ADV_ESTIMATOR_REGISTRY", "POLICY_LOSS_REGISTRY"

#: Table -> the decorator that fills it, and the stage of what it holds.
DECORATORS: Mapping[str, tuple[str, Stage]] = {
    ESTIMATORS: ("register_adv_est", "advantage"),
    LOSSES: ("register_policy_loss", "policy-loss"),
}

#: Folders of a checkout that hold code of a run: the package, and the recipes beside it.
FOLDERS = ("verl", "recipe")


def registered(target: Target, table: str) -> dict[str, Callable[..., Any]] | None:
    """Registered name to function; None where this release has no such table.

    Modules of the tree that use the table's decorator are imported first; one that cannot be is
    reported by :func:`missing`.

    Raises:
        Unbindable: if the module of the table cannot be imported.
    """
    module = target.module(MODULE)
    known = getattr(module, table, None)
    if known is None:
        return None
    for path in _users(target.root, DECORATORS[table][0]):
        target.has(path)
    return {str(getattr(name, "value", name)): function for name, function in known.items()}


def missing(target: Target, table: str) -> Iterator[Unbound]:
    """What the tree would have registered, had its module been importable."""
    decorator, stage = DECORATORS[table]
    for path in _users(target.root, decorator):
        try:
            target.module(path)
        except Unbindable as why:
            yield Unbound(path, stage, str(why))


@cache
def _users(root: Path, decorator: str) -> tuple[str, ...]:
    """Dotted paths of the modules, besides the table's own, in whose source the decorator is called."""
    called = f"@{decorator}(".encode(), f".{decorator}(".encode()
    found = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            path = ".".join(file.relative_to(root).with_suffix("").parts)
            if path != MODULE and any(word in file.read_bytes() for word in called):
                found.append(path)
    return tuple(found)
