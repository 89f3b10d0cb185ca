"""Read which item of a returned tuple or dict is the advantage and which the returns, from the names in the code."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from rl_sentinel.adapters.kit.layout_trial import accepts
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_results import AnotherOutput, NamedOutput
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.claims import value_of
from rl_sentinel.core.type_parameters import parse_source
from rl_sentinel.formulas.temporal import RETURNS

#: Short names of returns that only a variable has, since a parameter of this name may be anything.
_RETURNS = frozenset({"ret", "rets", "return_", "returns_"})


def returned_names(function: Callable[..., Any]) -> Mapping[str, int]:
    """Role -> the position of the advantage, and of the returns, in the tuple or dict that a function returns.

    It is empty if the code does not show the positions. An unnamed sum with the advantage, such as ``adv + values``,
    counts as the returns. If one of two items is the returns, the other is the advantage.

    Example:
        >>> from rl_sentinel.adapters.kit.returned_names import returned_names
        >>> returned_names(inspect.getdoc)
        {}
    """
    tree = _parsed(function)
    sums = _sums(tree)
    found = [names for items in _returned(tree) if (names := _roles([(key, _inlined(x, sums)) for key, x in items]))]
    return found[-1] if found and all(names == found[0] for names in found) else {}


def returned_items(function: Callable[..., Any]) -> list[int | str]:
    """The positions in the tuple, or the keys of the dict, that a function returns; empty if the code shows neither.

    A key of a nested dict is returned as ``outer.inner``.

    Example:
        >>> from rl_sentinel.adapters.kit.returned_names import returned_items
        >>> returned_items(inspect.getdoc)
        []
    """
    found = [list(_places(x.value)) for x in _own_nodes(_parsed(function)) if isinstance(x, ast.Return) and x.value]
    return found[-1] if found and all(places == found[0] for places in found) else []


def _places(value: ast.expr) -> Iterator[int | str]:
    if isinstance(value, ast.Tuple):
        yield from range(len(value.elts))
    elif isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                continue
            inner = [place for place in _places(item) if isinstance(place, str)]
            yield from [f"{key.value}.{place}" for place in inner] or [key.value]


def returns_nothing(function: Callable[..., Any]) -> bool:
    """Whether no ``return`` or ``yield`` of a function has a value; False if its code is unknown.

    Example:
        >>> from rl_sentinel.adapters.kit.returned_names import returns_nothing
        >>> returns_nothing(inspect.getdoc)
        False
    """
    nodes = list(_own_nodes(_parsed(function)))
    values = [x.value for x in nodes if isinstance(x, ast.Return | ast.Yield | ast.YieldFrom)]
    return bool(nodes) and all(x is None or (isinstance(x, ast.Constant) and x.value is None) for x in values)


def _parsed(function: Callable[..., Any]) -> ast.Module:
    """The code of a function; empty if it is not known."""
    try:
        return parse_source(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _own_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements and expressions of the outer function, without the functions and classes in it."""
    waiting: list[ast.AST] = list(tree.body[0].body) if tree.body and isinstance(tree.body[0], _DEFINITIONS) else []
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda, ast.ClassDef)):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def _returned(tree: ast.Module) -> Iterator[list[tuple[str, ast.expr]]]:
    """The items of each tuple or dict that the outer function returns; each item of a dict with its key."""
    for node in _own_nodes(tree):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Tuple | ast.List):
            yield [("", item) for item in value.elts]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
            yield [(str(keyword.arg), keyword.value) for keyword in value.keywords]
        elif isinstance(value, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else "" for key in value.keys]
            yield [(str(key), item) for key, item in zip(keys, value.values, strict=True)]


def _sums(tree: ast.Module) -> dict[str, ast.expr]:
    """Variable without a role -> the sum with values that is assigned to it, as in ``R = adv + values``.

    Variables with several assignments are left out.
    """
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    once = {name: found[0] for name, found in assigned.items() if len(found) == 1 and not _role(name)}
    return {name: x for name, x in once.items() if _is_sum(x) and "values" in map(_role, _names(x))}


def _inlined(value: ast.expr, sums: Mapping[str, ast.expr]) -> ast.expr:
    return sums.get(value.id, value) if isinstance(value, ast.Name) else value


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _roles(items: list[tuple[str, ast.expr]]) -> dict[str, int]:
    """The positions of the advantage and of the returns; empty if the position of one of them is not clear."""
    named = [_role(key) or _role_of_value(value) for key, value in items]
    if len(items) == 2:
        named = _roles_of_pair(named, [value for _, value in items])
    advantages = [n for n, role in enumerate(named) if role == "advantage"]
    returns = [n for n, role in enumerate(named) if role == "returns"]
    if len(advantages) != 1 or len(returns) > 1:
        return {}
    return {"advantage": advantages[0]} | ({"returns": returns[0]} if returns else {})


def _roles_of_pair(named: list[str], values: list[ast.expr]) -> list[str]:
    """The roles of two items, if the code shows how one follows from the other; otherwise ``named``, unchanged."""
    if named == ["advantage", "advantage"] and len({ast.dump(value) for value in values}) == 1:
        return ["advantage", "returns"]  # the same tensor twice, in the usual order
    if sorted(named) == ["", "returns"]:
        return [role or "advantage" for role in named]
    if named == ["", ""]:
        for n, (value, other) in enumerate((values, values[::-1])):
            if _is_sum(value) and isinstance(other, ast.Name) and other.id in _names(value):
                return ["returns", "advantage"][:: 1 - 2 * n]
    return named


def _role_of_value(value: ast.expr) -> str:
    """The role of an expression: of its only known name or key; a sum with the advantage has the role ``returns``."""
    roles = {_role(name) for name in _names(value)} & {"advantage", "returns"}
    if _is_sum(value) and "advantage" in roles:
        return "returns"
    return next(iter(roles)) if len(roles) == 1 else ""


def _is_sum(value: ast.expr) -> bool:
    """Whether an expression is an addition, or a product with an addition, as in ``mask * (advantage + value)``."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _is_sum(value.left) or _is_sum(value.right)
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)


def _names(value: ast.expr) -> set[str]:
    """The variables, attributes and keys in an expression."""
    nodes = list(ast.walk(value))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | {str(node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _role(name: str) -> str:
    return "returns" if name in _RETURNS else role_of(name)


def with_item(boundary: Boundary, item: int | str | None) -> Boundary:
    """The boundary, changed to read its output from an item of the result; unchanged if ``item`` is None."""
    if item is None:
        return boundary
    return replace(boundary, outputs={name: _at(output, item) for name, output in boundary.outputs.items()})


def with_returns(target: Target, boundary: Boundary, places: Mapping[str, int]) -> Boundary:
    """Add the returns as a second output, if the code or the result names them and the formula defines returns.

    If the result has a second tensor without a name, a note says that it is not compared.
    """
    defined = value_of(boundary.claims.algorithm) in RETURNS and "value" in boundary.reads
    if "advantage" not in boundary.outputs or not defined:
        return boundary
    output = boundary.outputs["advantage"]
    form = replace(_form(output), name="return", item=places.get("returns", 0), by_name="returns" not in places)
    named = replace(output, quantity="returns", form=form)
    wider = replace(boundary, outputs={**boundary.outputs, "returns": named})
    if accepts(target, wider):
        return wider
    beside = AnotherOutput(**{one.name: getattr(_form(output), one.name) for one in fields(NamedOutput)})
    unnamed = accepts(target, replace(boundary, outputs={"advantage": replace(output, form=beside)}))
    return replace(boundary, notes=(*boundary.notes, _UNNAMED)) if unnamed else boundary


_UNNAMED = "only the advantages in its result are compared: if another item is the returns, name it returns in the code"


def _at(output: Output, item: int | str) -> Output:
    return replace(output, form=replace(_form(output), item=item))


def _form(output: Output) -> NamedOutput:
    assert isinstance(output.form, NamedOutput)  # noqa: S101 - as user_boundary makes it
    return output.form
