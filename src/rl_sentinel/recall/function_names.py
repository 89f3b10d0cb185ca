"""Find the functions that a known bug names in a source tree, even if they moved to another package."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from rl_sentinel.core.type_parameters import parse_source

_NAME = re.compile(r"[A-Za-z_*][\w.*]*")

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def function_names(root: Path, file: str, text: str) -> tuple[str, ...]:
    """The functions that ``text`` names in a file of a tree, as ``FILE:NAME``; empty if the tree has no such file.

    ``text`` is a qualified name, several names, or prose that contains them. A class stands for all its functions. If
    no word is a function or a class of the file, the result is all functions of the file: ``FILE:*``.
    """
    place = _place(root, file)
    if place is None:
        return ()
    defined = dict(_defined(parse_source(place.read_bytes())))
    names = []
    for word in _NAME.findall(text):
        for name, is_class in defined.items():
            if fnmatchcase(f".{name}", f"*.{word.strip('.')}"):
                names += [name, f"{name}.*"] if is_class else [name]
    if names:
        return tuple(f"{place.name}:{name}" for name in dict.fromkeys(names))
    return (f"{place.relative_to(root).as_posix()}:*",)


def called_function(root: Path, boundary: str) -> str:
    """The last function of a boundary's path in a tree, as ``FILE:NAME``; empty if the tree has no such module.

    If no module has the whole name, its last words are the names of a class and a method.
    """
    words = boundary.rpartition(" -> ")[2].split(".")
    for size in range(len(words) - 1, 0, -1):
        file = "/".join(words[:size]) + ".py"
        if (root / file).is_file():
            return f"{file}:{'.'.join(words[size:])}"
    return ""


def _place(root: Path, file: str) -> Path | None:
    """The file of the same name that has the most last parts of its path in common with ``file``; None without one."""
    suffix = PurePosixPath(file).parts[::-1]

    def agreement(path: Path) -> int:
        parts = path.relative_to(root).parts[::-1]
        return next(
            (n for n, (a, b) in enumerate(zip(parts, suffix, strict=False)) if a != b), min(map(len, (parts, suffix)))
        )

    return max(sorted(root.rglob(suffix[0])), key=agreement, default=None)


def _defined(node: ast.AST, within: str = "") -> Iterator[tuple[str, bool]]:
    """Qualified name of each function and class at the top of a module or class, and whether it is a class.

    Those in blocks there, such as ``if``, ``try`` and ``with``, are included.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            yield f"{within}{child.name}", isinstance(child, ast.ClassDef)
            if isinstance(child, ast.ClassDef):
                yield from _defined(child, f"{within}{child.name}.")
        elif not isinstance(child, ast.expr | ast.Lambda):
            yield from _defined(child, within)
