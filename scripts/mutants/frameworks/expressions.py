"""Read and write small expressions: the last name of one, a whole number, a call of a method."""

import ast
import copy
import re
from typing import Any

#: Methods that leave the numbers as they are.
_SAME_NUMBERS = frozenset({"bool", "float", "squeeze", "to", "type_as", "unsqueeze"})


def last_name(node: ast.AST | None) -> str:
    """The name of a variable, of an attribute, or of a key; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return ""


def is_named(pattern: re.Pattern[str], node: ast.AST | None) -> bool:
    """Whether the last name matches, also of what is cast or has an axis added."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _SAME_NUMBERS and is_named(pattern, node.func.value)
    return bool(pattern.fullmatch(last_name(node)))


def is_text(node: ast.AST | None) -> bool:
    """Whether it is a string."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def whole_number(node: ast.AST | None) -> int | None:
    """The value of a whole number as it is written, with its sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = whole_number(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def signed(value: int) -> ast.expr:
    """A whole number as it is written."""
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def call_method(value: ast.expr, name: str, *arguments: ast.expr) -> ast.Call:
    """``value.name(arguments)``."""
    return ast.Call(ast.Attribute(value, name, ast.Load()), list(arguments), [])


def ones_like(mask: ast.expr) -> ast.expr:
    """A mask of ones in the place of another."""
    return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "ones_like", ast.Load()), [mask], [])


def replaced(whole: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """An expression with another one in the place of a part of it."""
    changed: ast.expr = _Replaced(old, new).visit(copy.deepcopy(whole))
    return changed


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new = ast.dump(old), new

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - the transformer's signature
        return self.new if ast.dump(node) == self.old else self.generic_visit(node)
