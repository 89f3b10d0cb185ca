"""Read source code with type parameters (``def f[T](x: T)``, of Python 3.12) in Python 3.11."""

import ast
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.abc import PathEntryFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, SimpleNamespace

#: The name of ``typing.Generic`` in a module whose type parameters are removed.
_GENERIC = "_TypeParameters"

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def parse_source(source: bytes | str) -> ast.Module:
    """The syntax tree of a module; type parameters are removed if this interpreter cannot parse them.

    Raises:
        SyntaxError: if the source is not valid otherwise.
        ValueError: if it has null bytes.

    Example:
        >>> from rl_sentinel.core.type_parameters import parse_source
        >>> parse_source(b"def first[T](items: list[T]) -> T: ...").body[0].name
        'first'
    """
    try:
        return ast.parse(source)
    except SyntaxError as error:
        try:
            text, names = without_type_parameters(source.encode() if isinstance(source, str) else source)
        except UnicodeDecodeError:
            raise error from None
        if not names:
            raise
        return ast.parse(text)


def without_type_parameters(source: bytes) -> tuple[str, tuple[str, ...]]:
    """The source without the type parameters of functions and classes, and the parameters, with their stars.

    Lines keep their numbers. A class gets ``Generic`` as its last base, under the name :data:`_GENERIC`.

    Raises:
        UnicodeDecodeError: if the source is not text in its encoding.

    Example:
        >>> from rl_sentinel.core.type_parameters import without_type_parameters
        >>> without_type_parameters(b"class Box[T](list): ...")
        ('class Box(list, _TypeParameters[T]): ...', ('T',))
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    lines = source.decode(encoding).splitlines(keepends=True)
    try:
        read = tokenize.generate_tokens(iter(lines).__next__)
        tokens = [t for t in read if t.string.strip() and t.type != tokenize.COMMENT]
    except tokenize.TokenError:
        return "".join(lines), ()
    edits: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    names: list[str] = []
    for place in range(len(tokens) - 2):
        word, opening = tokens[place], tokens[place + 2]
        if word.type != tokenize.NAME or word.string not in {"def", "class"} or opening.string != "[":
            continue
        end = _closing(tokens, place + 2)
        own = tuple(_parameters(tokens[place + 3 : end]))
        names.extend(own)
        edits.append((opening.start, tokens[end].end, ""))
        if word.string == "class":
            edits.append(_base(tokens, end + 1, f"{_GENERIC}[{', '.join(name.removeprefix('**') for name in own)}]"))
    for start, stop, text in reversed(edits):
        _replace(lines, start, stop, text)
    return "".join(lines), tuple(dict.fromkeys(names))


def _closing(tokens: Sequence[tokenize.TokenInfo], place: int) -> int:
    """The place of the bracket that closes the one at ``place``."""
    depth = 0
    for number in range(place, len(tokens)):
        depth += (tokens[number].string in _OPEN) - (tokens[number].string in _CLOSE)
        if not depth:
            return number
    return len(tokens) - 1


def _parameters(tokens: Sequence[tokenize.TokenInfo]) -> Iterator[str]:
    """The parameters between the brackets, with their stars and without bounds: ``T``, ``*Ts`` or ``**P``."""
    depth, starts, stars = 0, True, ""
    for token in tokens:
        if starts and token.type == tokenize.NAME:
            yield stars + token.string
        starts = not depth and token.string in {",", "*", "**"}
        stars = token.string if starts and token.string != "," else ""
        depth += (token.string in _OPEN) - (token.string in _CLOSE)


def _base(tokens: Sequence[tokenize.TokenInfo], place: int, base: str) -> tuple[tuple[int, int], tuple[int, int], str]:
    """The edit that adds a base to a class, after its other bases; its type parameters end before ``place``."""
    if tokens[place].string != "(":
        return tokens[place].start, tokens[place].start, f"({base})"
    end, depth = _closing(tokens, place), 0
    for number in range(place + 1, end):
        if not depth and tokens[number].type == tokenize.NAME and tokens[number + 1].string == "=":
            return tokens[number].start, tokens[number].start, f"{base}, "  # keywords come after the bases
        depth += (tokens[number].string in _OPEN) - (tokens[number].string in _CLOSE)
    bases = end > place + 1 and tokens[end - 1].string != ","
    return tokens[end].start, tokens[end].start, f", {base}" if bases else base


def _replace(lines: list[str], start: tuple[int, int], stop: tuple[int, int], text: str) -> None:
    """Replace the text between two positions (line from 1, column); line breaks inside are kept."""
    first, last = start[0] - 1, stop[0] - 1
    head, tail = lines[first][: start[1]], lines[last][stop[1] :]
    if first == last:
        lines[first] = head + text + tail
        return
    # An open bracket would continue the line: a backslash does so as well.
    lines[first] = f"{head}{text}\\\n"
    lines[first + 1 : last] = ["\\\n"] * (last - first - 1)
    lines[last] = tail


class GenericLoader(SourceFileLoader):
    """Loads modules whose type parameters this interpreter cannot parse: type variables take their place."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of a module."""
        try:
            return super().get_code(fullname)
        except SyntaxError:
            text, names = without_type_parameters(Path(self.path).read_bytes())
            if not names:
                raise
            return compile(_with_variables(ast.parse(text), names), self.path, "exec", dont_inherit=True)


def _with_variables(tree: ast.Module, names: Sequence[str]) -> ast.Module:
    """The module with a variable for each parameter, defined after its docstring and its ``__future__`` imports."""
    kinds = {"": "TypeVar", "*": "TypeVarTuple", "**": "ParamSpec"}
    lines = [f"import typing as _typing; {_GENERIC} = _typing.Generic"]
    for parameter in names:
        name = parameter.lstrip("*")
        lines.append(f"{name} = _typing.{kinds[parameter.removesuffix(name)]}({name!r})")
    defined = ast.parse("\n".join(lines)).body
    for node in (inner for statement in defined for inner in ast.walk(statement)):
        if isinstance(node, ast.stmt | ast.expr | ast.alias):
            node.lineno = node.end_lineno = 1
    first = 0
    while first < len(tree.body) and _comes_first(tree.body[first]):
        first += 1
    tree.body[first:first] = defined
    return tree


def _comes_first(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or an import from ``__future__``."""
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__")


def read_type_parameters(root: Path) -> None:
    """Import modules below ``root`` with :class:`GenericLoader`, and let ``inspect`` find their classes.

    Nothing is done if this interpreter reads type parameters itself.
    """
    if sys.version_info >= (3, 12):
        return
    # findsource parses the whole file for each class
    vars(inspect)["ast"] = SimpleNamespace(**{**vars(ast), "parse": lru_cache(maxsize=16)(parse_source)})
    find = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (GenericLoader, SOURCE_SUFFIXES))

    def hook(path: str) -> PathEntryFinder:
        if not Path(path).resolve().is_relative_to(root):
            message = f"{path} is outside of {root}"
            raise ImportError(message)
        return find(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()
