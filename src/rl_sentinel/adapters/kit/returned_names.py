"""Read which item of a returned tuple or dict is the advantage and which the returns, from the names in the code."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.layout_trial import accepts
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_results import NamedOutput
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.core.claims import value_of
from rl_sentinel.formulas.temporal import RETURNS

#: Short names of returns that only a variable has, since a parameter of this name may be anything.
_RETURNS = frozenset({"ret", "rets", "return_", "returns_"})


def returned_names(function: Callable[..., Any]) -> Mapping[str, int]:
    """Role of an item -> its position, in the tuple or dict that a function returns; empty if the code shows none.

    An item without a name of its own that adds to the advantage, as ``adv + values``, is the returns.

    Example:
        >>> from rl_sentinel.adapters.kit.returned_names import returned_names
        >>> returned_names(inspect.getdoc)
        {}
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return {}
    found = [names for items in _returned(tree) if (names := _roles(items))]
    return found[-1] if found and all(names == found[0] for names in found) else {}


def _returned(tree: ast.Module) -> Iterator[list[tuple[str, ast.expr]]]:
    """The items of each tuple or dict that the outer function returns, with the key of an item of a dict."""
    waiting: list[ast.AST] = list(tree.body[0].body) if tree.body and isinstance(tree.body[0], _DEFINITIONS) else []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (*_DEFINITIONS, ast.Lambda, ast.ClassDef)):
            continue
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Tuple):
            yield [("", item) for item in value.elts]
        elif isinstance(value, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else "" for key in value.keys]
            yield [(str(key), item) for key, item in zip(keys, value.values, strict=True)]
        waiting.extend(ast.iter_child_nodes(node))


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _roles(items: list[tuple[str, ast.expr]]) -> dict[str, int]:
    """The positions of the advantage and of the returns; empty if one of them is not clear."""
    named = [_role(key) or _role_of_value(value) for key, value in items]
    if named == ["advantage", "advantage"] and len({ast.dump(value) for _, value in items}) == 1:
        named = ["advantage", "returns"]  # the same tensor twice, in the usual order
    advantages = [n for n, role in enumerate(named) if role == "advantage"]
    returns = [n for n, role in enumerate(named) if role == "returns"]
    if len(advantages) != 1 or len(returns) > 1:
        return {}
    return {"advantage": advantages[0]} | ({"returns": returns[0]} if returns else {})


def _role_of_value(value: ast.expr) -> str:
    """The role of the only known name in an expression; of a sum with the advantage, the returns."""
    roles = {role for node in ast.walk(value) if isinstance(node, ast.Name) and (role := _role(node.id))}
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and "advantage" in roles:
        return "returns"
    return next(iter(roles & {"advantage", "returns"})) if len(roles & {"advantage", "returns"}) == 1 else ""


def _role(name: str) -> str:
    return "returns" if name in _RETURNS else role_of(name)


def with_advantage_item(boundary: Boundary, places: Mapping[str, int]) -> Boundary:
    """The boundary, whose advantage is read from the item of a tuple that the code names so."""
    if "advantage" not in boundary.outputs or not places.get("advantage"):
        return boundary
    output = boundary.outputs["advantage"]
    return replace(boundary, outputs={"advantage": _at(output, places["advantage"])})


def with_returns(target: Target, boundary: Boundary, places: Mapping[str, int]) -> Boundary:
    """The boundary with the returns as second output, if the function names them and the algorithm defines them."""
    defined = value_of(boundary.claims.algorithm) in RETURNS and "value" in boundary.reads
    if "returns" not in places or "advantage" not in boundary.outputs or not defined:
        return boundary
    output = _at(boundary.outputs["advantage"], places["returns"])
    named = replace(output, quantity="returns", form=replace(_form(output), name="return"))
    wider = replace(boundary, outputs={**boundary.outputs, "returns": named})
    return wider if accepts(target, wider) else boundary


def _at(output: Output, item: int) -> Output:
    return replace(output, form=replace(_form(output), item=item))


def _form(output: Output) -> NamedOutput:
    assert isinstance(output.form, NamedOutput)  # noqa: S101 - as user_boundary makes it
    return output.form
