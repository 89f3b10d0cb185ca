"""Read from the code of a function which parameters are texts, flags or numbers, and whose axes it counts."""

import ast
import dis
import inspect
import re
from collections.abc import Callable, Iterator
from textwrap import dedent
from types import CodeType
from typing import Any, Literal

from rl_sentinel.adapters.kit.roles import parameters_of
from rl_sentinel.adapters.live_target import unwrap
from rl_sentinel.core.type_parameters import parse_source

#: Kinds of values that are not columns.
Kind = Literal["text", "flag", "number"]

#: The kind of a value and, of a text, the literals that the code compares it with.
Use = tuple[Kind, tuple[str, ...]]

#: Calls whose arguments are sizes or positions, as methods or functions.
_SIZES = frozenset({"view", "reshape", "range", "arange", "zeros", "ones", "chunk", "split", "unflatten"})

#: Methods of texts that tensors do not have.
_OF_TEXT = frozenset({"lower", "upper", "startswith", "endswith", "casefold"})

#: The beginning of an annotation of several values.
_LISTED = r"(?:typing\.|collections\.abc\.)?(?:list|tuple|sequence|iterable)\b|<class '(?:list|tuple)'>"

#: Annotations of plain values.
_ANNOTATED: dict[object, Kind] = {
    **dict.fromkeys((str, "str"), "text"),
    **dict.fromkeys((bool, "bool"), "flag"),
    **dict.fromkeys((int, float, "int", "float"), "number"),
}


def plain_uses(function: Callable[..., Any]) -> dict[str, Use]:
    """The parameters, and keys and attributes of parameters, that a function uses as a text, a flag or a number.

    An annotation of a parameter counts as a use.

    Returns:
        path, such as ``cfg.kl_type``, -> its use.

    Example:
        >>> from rl_sentinel.adapters.kit.parameter_uses import plain_uses
        >>> plain_uses(lambda rewards, kind: rewards if kind == "raw" else -rewards)
        {'kind': ('text', ('raw',))}
    """
    parameters = parameters_of(function)
    uses: dict[str, Use] = {
        name: (_ANNOTATED[one.annotation], ())
        for name, one in parameters.items()
        if isinstance(one.annotation, type | str) and one.annotation in _ANNOTATED
    }
    scalars = {name for name, one in parameters.items() if not re.match(_LISTED, str(one.annotation), re.IGNORECASE)}
    body = syntax_tree(function)
    variables = _variables(body)
    for node in ast.walk(body):
        for where, kind, texts in _uses(node):
            path = variables.get(_path(where), _path(where))
            if path.partition(".")[0] in scalars and (path not in uses or texts):
                known = uses[path][1] if path in uses else ()
                uses[path] = (kind, tuple(dict.fromkeys((*known, *texts))))
    return uses


def axes_read(function: Callable[..., Any]) -> list[str]:
    """The parameters whose number of axes the body of a function reads; also keys and attributes of parameters.

    Example:
        >>> from rl_sentinel.adapters.kit.parameter_uses import axes_read
        >>> axes_read(lambda rewards, mask: rewards if rewards.dim() == 1 else rewards * mask)
        ['rewards']
    """
    parameters, body = parameters_of(function), syntax_tree(function)
    variables = _variables(body)
    paths = (_path(one) for node in ast.walk(body) if (one := _counted(node)) is not None)
    stated = (variables.get(path, path) for path in paths)
    return list(dict.fromkeys(path for path in stated if path.partition(".")[0] in parameters))


def _counted(node: ast.AST) -> ast.AST | None:
    """The tensor whose axes an expression counts."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="dim" | "ndimension")):
            return value
        case ast.Attribute(value=value, attr="ndim"):
            return value
        case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=value, attr="shape")]):
            return value
        case ast.Call(func=ast.Name(id="len"), args=[ast.Call(func=ast.Attribute(value=value, attr="size"), args=[])]):
            return value
    return None


def syntax_tree(function: Callable[..., Any]) -> ast.AST:
    """The syntax tree of a function; empty if its source is unknown, or is part of an expression."""
    try:
        return parse_source(dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _variables(body: ast.AST) -> dict[str, str]:
    """The variables that stand for a path, such as ``n`` after ``n = cfg.rollout.n``."""
    return {
        node.targets[0].id: path
        for node in ast.walk(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (path := _path(node.value))
    }


def _path(node: ast.AST) -> str:
    """The path of an expression, as ``cfg.kl.kind`` for ``cfg.kl["kind"]`` and ``cfg.kl.get("kind")``, or empty."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        outer, name = _path(node.value), node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        outer, name = _path(node.value), str(node.slice.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        first = node.args[0]
        outer, name = _path(node.func.value), str(first.value) if isinstance(first, ast.Constant) else ""
    else:
        return ""
    return f"{outer}.{name}" if outer and name else ""


def _uses(node: ast.AST) -> Iterator[tuple[ast.AST, Kind, list[str]]]:
    """The expressions that a node uses as a plain value, each with its kind and, for a text, the literals."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from ((one, "number", []) for one in (lower, upper, step) if one is not None)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.Assert(test=test):
            yield from _truths(test)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _OF_TEXT:
            yield value, "text", []
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=args) if name in _SIZES:
            yield from ((one, "number", []) for one in args)
        case _:
            places, literals = _compared(node)
            texts = [text for one in literals for text in _texts(one)]
            yield from ((place, "text", texts) for place in places if texts)


def _compared(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """Two lists: the expressions that a node compares, looks up or matches, and the other operands."""
    match node:
        case ast.Compare(left=left, comparators=others):
            return [left, *others], [left, *others]
        case ast.Subscript(value=ast.Dict(keys=keys), slice=key):
            return [key], [one for one in keys if one is not None]
        case ast.Match(subject=subject, cases=cases):
            return [subject], [one.pattern.value for one in cases if isinstance(one.pattern, ast.MatchValue)]
    return [], []


def _texts(node: ast.AST) -> list[str]:
    """The texts in a literal, or in a tuple, list or set of literals."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _truths(test: ast.AST) -> Iterator[tuple[ast.AST, Kind, list[str]]]:
    """The expressions that a condition uses as flags, and the numbers that it compares."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _truths(part)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _truths(test.operand)
    elif isinstance(test, ast.Compare) and _is_number(test.comparators[0]):
        yield test.left, "number", []
    else:
        yield test, "flag", []


def is_read(function: Callable[..., Any], parameter: str) -> bool:
    """Whether the code of a function reads a parameter; True if this is not known, as for functions not in Python."""
    code = getattr(unwrap(function), "__code__", None)
    if code is None or parameter not in code.co_varnames + code.co_cellvars:
        return True
    return any(step.argval == parameter and step.opname.startswith("LOAD") for step in _instructions(code))


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of a function; an instruction that loads two variables is split in two."""
    for step in dis.get_instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        yield from (step._replace(argval=name) for name in names)
