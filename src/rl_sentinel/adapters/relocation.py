"""Find a function or class that moved: search the source tree for a module of the same name with its definition."""

import ast
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from rl_sentinel.core.type_parameters import parse_source

#: Maximum parts of a dotted path after the module: a class and its method.
_NAMES = 2


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The Python files of a package, listed once: by name without suffix, and by folder."""

    package: Path
    by_name: Mapping[str, list[Path]]
    by_folder: Mapping[str, list[Path]]

    @classmethod
    def of(cls, package: Path) -> Self:
        """List the files of a package."""
        by_name, by_folder = defaultdict[str, list[Path]](list), defaultdict[str, list[Path]](list)
        for folder, _, files in os.walk(package):
            for name in files:
                if name.endswith(".py"):
                    file = Path(folder, name)
                    by_name[file.stem].append(file)
                    if file.parent != package:
                        by_folder[file.parent.name].append(file)
        return cls(package, by_name, by_folder)

    def modules(self, name: str) -> set[Path]:
        """The files of modules with this name, and of modules in packages with this name."""
        return {*self.by_name.get(name, ()), *self.by_folder.get(name, ())}


def relocated(files: SourceFiles, path: str) -> str:
    """Translate a dotted path of another layout to the package of ``files``; return it unchanged if nothing matches.

    A match is a module that defines the function or class, and has the same name or is in a package with this name.
    Of several matches, the path with the most parts in common with ``path`` is used; with a tie, no match is used.
    """
    parts = path.split(".")
    for size in range(1, min(_NAMES, len(parts) - 2) + 1):
        stem, name = parts[-size - 1], ".".join(parts[-size:])
        modules = [_module(files.package, f) for f in sorted(files.modules(stem)) if name in _definitions(f)]
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
    """Names that statements at the top of a module define, not those in blocks, and methods as ``Class.method``.

    Variables count only in plain assignments. A file that does not parse has no names.
    """
    try:
        return frozenset(_names(parse_source(file.read_bytes())))
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
