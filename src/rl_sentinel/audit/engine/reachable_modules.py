"""Find the modules that a boundary can reach by imports, without running them."""

import ast
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.function_filter import in_file_of
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.type_parameters import parse_source

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


def can_reach(target: Target, boundary: Boundary, functions: Iterable[str]) -> bool:
    """Whether imports lead from a function that the boundary names to a file of ``functions`` (as ``FILE:NAME``).

    Imports inside functions count, and strings that name a module. Modules found in another way, such as a module that
    registers itself, do not count.
    """
    wanted = tuple(functions)
    named = {path for name in _dotted_names(boundary) for path in _modules(target.root, target.locate(name))}
    reached = (path.relative_to(target.root).as_posix() for path in _closure(named, target.root))
    return any(in_file_of(place, wanted) for place in reached)


def _dotted_names(value: Any) -> Iterator[str]:  # noqa: ANN401 - a part of a boundary
    """All strings in a boundary that could be the path of a function."""
    if isinstance(value, str):
        yield from (part for part in value.split(" -> ") if _DOTTED.fullmatch(part))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _dotted_names(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _dotted_names(key)
            yield from _dotted_names(part)
    elif isinstance(value, tuple | list | frozenset):
        for part in value:
            yield from _dotted_names(part)


def _closure(start: Iterable[Path], root: Path) -> set[Path]:
    reached, remaining = set[Path](), list(start)
    while remaining:
        path = remaining.pop()
        if path not in reached:
            reached.add(path)
            remaining += _imports(path, root)
    return reached


@cache
def _imports(path: Path, root: Path) -> frozenset[Path]:
    """The modules of the tree that a module imports, or names in a string."""
    found = set[Path]()
    for module, name in _import_statements(path, root):
        found |= _modules(root, f"{module}.{name}" if name else module)
    found |= {one for text in _strings(path) for one in _modules(root, text)}
    return frozenset(found)


def _import_statements(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """(Module, imported name) of each import in a file; the name is "" if the module itself is imported."""
    package = path.parent.relative_to(root).parts
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((module, "" if alias.name == "*" else alias.name) for alias in node.names)


def _strings(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            yield node.value


@cache
def _plain_values(path: Path) -> frozenset[str]:
    """The names that a module assigns, such as a version."""
    nodes = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Assign)]
    return frozenset(target.id for node in nodes for target in node.targets if isinstance(target, ast.Name))


@cache
def _tree(path: Path) -> ast.AST:
    try:
        return parse_source(path.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


@cache
def _modules(root: Path, dotted: str) -> frozenset[Path]:
    """Files that may define a dotted name; imports of a package are followed, and its plain values have no file."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        place = root.joinpath(*parts[:size])
        if place.with_suffix(".py").is_file():
            return frozenset({place.with_suffix(".py")})
        init = place / "__init__.py"
        if place.is_dir():
            if size == len(parts) or not init.is_file():
                return frozenset({init} if init.is_file() else ())
            if parts[size] in _plain_values(init):
                return frozenset()
            sources = [f"{module}.{name}" for module, name in _import_statements(init, root) if name == parts[size]]
            return frozenset().union(*(_modules(root, source) for source in sources)) or frozenset({init})
    return frozenset()
