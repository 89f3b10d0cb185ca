"""Find names of verl's functions in its source, for releases whose module cannot be imported."""

import ast
from collections.abc import Iterator

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.registries import DECORATORS, MODULE
from rl_sentinel.core.type_parameters import parse_source

#: Endings of the names of estimators, in releases without a registry.
ENDINGS = ("_outcome_advantage", "_advantage_return")


def defined_functions(target: Target) -> tuple[str, ...]:
    """Names of the functions in the module of the registries; empty if its source cannot be read."""
    return tuple(f.name for f in _functions(target))


def decorated_functions(target: Target, table: str) -> tuple[str, ...]:
    """Names of the functions with the decorator of this registry, in source order."""
    decorator = DECORATORS[table][0]
    return tuple(f.name for f in _functions(target) if decorator in map(_decorator_name, f.decorator_list))


def _functions(target: Target) -> Iterator[ast.FunctionDef]:
    place = target.root.joinpath(*MODULE.split(".")).with_suffix(".py")
    try:
        tree = parse_source(place.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    yield from (node for node in tree.body if isinstance(node, ast.FunctionDef))


def _decorator_name(decorator: ast.expr) -> str:
    """The name of a decorator without its module: ``register`` for ``@core.register(...)``."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).rpartition(".")[2]
