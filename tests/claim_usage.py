"""Find in the source of a law which claims it reads, directly or in functions that it calls."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rl_sentinel
from rl_sentinel.core.claims import NAMES

_ROOT = Path(rl_sentinel.__file__).parents[1]


def read_claims(module: str) -> set[str]:
    """The claims that a module reads, directly or through functions that it imports from the package."""
    read: set[str] = set()
    visited: set[tuple[str, str]] = set()
    waiting = [(module, name) for name in _definitions(module)]
    while waiting:
        at = waiting.pop()
        if at in visited:
            continue
        visited.add(at)
        for node in ast.walk(_definitions(at[0])[at[1]]):
            read |= set(_read(node))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                waiting += _resolved(at[0], node.id)
    return read


def _read(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "claims":
        yield from {node.attr} & set(NAMES)


def _resolved(module: str, name: str) -> list[tuple[str, str]]:
    """The definition of a name, in this module or in the one that it is imported from."""
    if name in _definitions(module):
        return [(module, name)]
    source = _imports(module).get(name, "")
    return [(source, name)] if source and name in _definitions(source) else []


@cache
def _definitions(module: str) -> dict[str, ast.AST]:
    """Functions and top-level assignments of a module, by name."""
    definitions: dict[str, ast.AST] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef):
            definitions[node.name] = node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        definitions |= {t.id: node for t in targets if isinstance(t, ast.Name)}
    return definitions


@cache
def _imports(module: str) -> dict[str, str]:
    nodes = [
        n for n in _tree(module).body if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("rl_sentinel")
    ]
    return {alias.name: str(node.module) for node in nodes for alias in node.names}


def _tree(module: str) -> ast.Module:
    path = _ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))
