"""Read names of verl's functions from its source, for releases whose module cannot be imported."""

import ast
from collections.abc import Iterator

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.registries import DECORATORS, MODULE

#: Endings of the estimators' names, before there was a registry.
ENDINGS = ("_outcome_advantage", "_advantage_return")


def written(target: Target) -> tuple[str, ...]:
    """Names of the functions that the module of the registries defines; none where its source cannot be read."""
    return tuple(f.name for f in _functions(target))


def decorated(target: Target, table: str) -> tuple[str, ...]:
    """Names of the functions that have this registry's decorator, in the order of the file."""
    decorator = DECORATORS[table][0]
    return tuple(f.name for f in _functions(target) if decorator in map(_called, f.decorator_list))


def _functions(target: Target) -> Iterator[ast.FunctionDef]:
    place = target.root.joinpath(*MODULE.split(".")).with_suffix(".py")
    try:
        tree = ast.parse(place.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def _called(decorator: ast.expr) -> str:
    """The last name of what a decorator calls: ``register`` of ``@core.register(...)``."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]
