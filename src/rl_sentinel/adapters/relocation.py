"""Find a function or class that moved: search the source tree for a module of the same name that defines it."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

#: Maximum parts of a dotted path after the module: a class and its method.
_NAMES = 2


def relocated(package: Path, path: str) -> str:
    """Translate a dotted path of another layout to this ``package``; return ``path`` unchanged if nothing matches.

    A match is a module of the same name, or a module in a package of this name, that defines the function or class.
    Of several matches, the one whose path has the most parts in common with ``path`` is used; with a tie, none is.
    """
    parts = path.split(".")
    for size in range(1, min(_NAMES, len(parts) - 2) + 1):
        stem, name = parts[-size - 1], ".".join(parts[-size:])
        files = {*package.rglob(f"{stem}.py"), *package.rglob(f"{stem}/*.py")}
        modules = [_module(package, f) for f in sorted(files) if name in _definitions(f)]
        ranked = sorted(modules, key=lambda module: -_common(module, parts))
        if ranked and (len(ranked) == 1 or _common(ranked[0], parts) > _common(ranked[1], parts)):
            return f"{ranked[0]}.{name}"
    return path


def _module(package: Path, file: Path) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _common(module: str, parts: list[str]) -> int:
    """The number of parts that two dotted paths have in common, at any position."""
    return (Counter(module.split(".")) & Counter(parts)).total()


@cache
def _definitions(file: Path) -> frozenset[str]:
    """Functions, classes and variables of a module, and methods as ``Class.method``."""
    try:
        return frozenset(_names(ast.parse(file.read_bytes())))
    except SyntaxError:
        return frozenset()


def _names(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            inner = (n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))
            yield from (f"{node.name}.{n.name}" for n in inner)
        if isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
