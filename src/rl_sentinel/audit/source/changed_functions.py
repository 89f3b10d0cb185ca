"""Compare two states of a source file: find changed functions, and the new lines of all other functions.

A file is split into the bodies of its outermost functions and methods, and its outline: everything else, with
signatures, decorators, defaults, docstrings and comments. The changed functions are known only if the outlines are
equal, because the code of an outline runs at import.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from rl_sentinel.core.type_parameters import parse_source

#: Line and byte, both from 0.
_Position = tuple[int, int]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class _Function:
    """An outermost function: its first line (from 1, decorators included), its last line, and its body."""

    first: int
    last: int
    body: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a file; ``classes`` are the first lines of its classes."""

    outline: str
    functions: tuple[_Function, ...]
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The difference between two states of one file with equal outlines.

    ``functions`` are the first lines, in the old state, of functions whose body changed. ``lines`` maps line numbers of
    the old state to the new state: all lines of unchanged functions, and the first lines of changed functions and
    classes.
    """

    functions: frozenset[int] = frozenset()
    lines: dict[int, int] = field(default_factory=dict)


def compare(old: str, new: str) -> FileChange | None:
    r"""The change from one text of a file to another; None if more than bodies of functions changed, or is unknown.

    Example:
        >>> from rl_sentinel.audit.source.changed_functions import compare
        >>> change = compare("def f():\n    return 1\n", "def f():\n    return 2\n")
        >>> sorted(change.functions)
        [1]
        >>> compare("SCALE = 1\n", "SCALE = 2\n") is None
        True
    """
    before, after = _parts(old), _parts(new)
    if before is None or after is None or before.outline != after.outline:
        return None
    changed, lines = set[int](), dict(zip(before.classes, after.classes, strict=True))
    for was, now in zip(before.functions, after.functions, strict=True):
        lines[was.first] = now.first
        if was.body != now.body or was.last - was.first != now.last - now.first:
            changed.add(was.first)
        else:
            lines |= {was.first + n: now.first + n for n in range(was.last - was.first + 1)}
    return FileChange(frozenset(changed), lines)


def _parts(text: str) -> _Parts | None:
    """The parts of a file; None if it is not Python of this interpreter's version."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    try:
        tree = parse_source(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = [line.encode() for line in text.split("\n")]
    functions, outline, at = list[_Function](), list[bytes](), (0, 0)
    nodes = [*_outermost(tree)]
    for node in (n for n in nodes if isinstance(n, _FUNCTIONS)):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        start, end = _body(node, lines)
        outline += (_cut(lines, at, start), f"\0{_kind(node)}\0".encode())
        functions.append(_Function(first, end[0] + 1, _cut(lines, start, end).decode()))
        at = end
    outline.append(_cut(lines, at, (len(lines) - 1, len(lines[-1]))))
    kept = (line.rstrip() for line in b"".join(outline).split(b"\n"))
    classes = tuple(line for n in nodes if isinstance(n, ast.ClassDef) for line in _first_lines(n))
    return _Parts(b"\n".join(line for line in kept if line).decode(), tuple(functions), classes)


def _outermost(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Outermost functions, and the classes that hold them, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield child
        if not isinstance(child, _FUNCTIONS):
            yield from _outermost(child)


def _first_lines(node: ast.ClassDef) -> tuple[int, int]:
    """The possible first lines of a class: the line of its first decorator, and the line with its name."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.lineno


def _body(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[bytes]) -> tuple[_Position, _Position]:
    """Where the body of a function begins and ends, with its comments and without its docstring."""
    first, last = node.body[0], node.body[-1]
    end = _end(last, lines)
    if ast.get_docstring(node, clean=False) is not None:
        return _end(first, lines), end
    line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))]) - 1
    if lines[line][: first.col_offset].strip(b" \t@"):
        return (line, first.col_offset), end  # on the line of the signature
    while lines[line - 1].lstrip()[:1] in (b"", b"#"):
        line -= 1
    return (line, 0), end


def _end(node: ast.stmt, lines: list[bytes]) -> _Position:
    """The end of a statement, or of the comment after it."""
    line, column = (node.end_lineno or node.lineno) - 1, node.end_col_offset or 0
    rest = lines[line][column:].strip()
    return (line, len(lines[line]) if rest[:1] in (b"", b"#") else column)


def _cut(lines: list[bytes], start: _Position, end: _Position) -> bytes:
    """The text from one position to another."""
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]]
    inner = lines[start[0] + 1 : end[0]]
    return b"\n".join((lines[start[0]][start[1] :], *inner, lines[end[0]][: end[1]]))


def _kind(node: ast.AST) -> str:
    """Properties of a body that matter before a call: whether it is a generator, and uses the defining class."""
    words, waiting = set[str](), [*ast.iter_child_nodes(node)]
    while waiting:
        child = waiting.pop()
        words |= {"yield"} if isinstance(child, (ast.Yield, ast.YieldFrom)) else set()
        words |= {child.id} & {"super", "__class__"} if isinstance(child, ast.Name) else set()
        if not isinstance(child, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(child)
    return " ".join(sorted(words))
