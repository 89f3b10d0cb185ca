"""Find the ignore index of a loss, such as -100: the token id of tokens that do not train."""

import ast
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.adapters.kit.parameter_uses import syntax_tree
from rl_sentinel.adapters.kit.read_objects import owner_of, read_functions
from rl_sentinel.adapters.live_target import unwrap

#: The ignore index of torch and transformers; a loss that only tests whether an id is negative gets it too.
USUAL = -100

#: Attributes and methods of a tensor whose value is no longer an id, such as its size or its sum.
_NOT_IDS = frozenset(
    {"shape", "ndim", "dtype", "device", "size", "numel", "dim", "sum", "mean", "prod", "count_nonzero"}
)

#: Methods of a tensor that compare it with a number.
_COMPARISONS = frozenset({"eq", "ne", "ge", "gt", "lt", "le"})


def ignored_ids(function: Callable[..., Any], names: Collection[str]) -> dict[str, int]:
    """Name -> the negative id of its untrained tokens, for parameters and keys that the code compares with an id.

    The code shows the id by ``ignore_index=``, which then holds for all names, or by a comparison of the tokens with a
    negative number or with 0; a comparison only with 0 gives -100. The code is read and not run.

    Args:
        function: the function; the functions of its module and the methods of its object that it names are read too.
        names: names of tokens.

    Example:
        >>> from rl_sentinel.adapters.kit.ignored_ids import ignored_ids
        >>> ignored_ids(lambda logits, targets: logits.sum() / (targets != -1).sum(), ["targets"])
        {'targets': -1}
    """
    plain, owner = unwrap(function), owner_of(function)
    stated, compared = list[int](), dict[str, list[int]]()
    for one in read_functions(plain, owner):
        numbers = {name: p.default for name, p in inspect.signature(one).parameters.items()}
        body = _Body(names, {**one.__globals__, **numbers}, owner)
        for node in ast.walk(body.read(syntax_tree(one))):
            stated += body.ignore_index(node)
            for name, number in body.comparisons(node):
                compared.setdefault(name, []).append(number)
    if stated:
        return dict.fromkeys(names, stated[0])
    return {name: min((x for x in numbers if x < 0), default=USUAL) for name, numbers in compared.items()}


@dataclass(slots=True)
class _Body:
    """The code of one function: names of tokens, values of its other names, and variables made from tokens."""

    names: Collection[str]
    values: Mapping[str, object]
    owner: object
    variables: dict[str, str] = field(default_factory=dict)

    def read(self, tree: ast.AST) -> ast.AST:
        """Find the variables that are parts of tokens, as after ``shifted = targets[:, 1:]``."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for variable, value in _assigned(node.targets[0], node.value):
                    self.variables |= {variable: of} if (of := self._of(value)) else {}
        return tree

    def ignore_index(self, node: ast.AST) -> list[int]:
        """The negative number in the argument ``ignore_index`` of a call; empty if the call has none."""
        keywords = node.keywords if isinstance(node, ast.Call) else []
        numbers = [self._number(one.value) for one in keywords if one.arg == "ignore_index"]
        return [x for x in numbers if x is not None and x < 0]

    def comparisons(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        """Pairs of a name of tokens and the number, at most 0, with which an expression compares these tokens."""
        match node:
            case ast.Compare(left=left, comparators=[right]):
                sides = [(left, right), (right, left)]
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=[other]) if name in _COMPARISONS:
                sides = [(value, other)]
            case _:
                return
        for tokens, number in sides:
            found, of = self._number(number), self._of(tokens)
            if of and found is not None and found <= 0:
                yield of, found

    def _number(self, node: ast.AST) -> int | None:
        """The whole number of a literal, or of a name with a known value; None for other expressions."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._number(node.operand)
            return None if number is None else -number
        value: object = None
        if isinstance(node, ast.Constant):
            value = node.value
        elif isinstance(node, ast.Name):
            value = self.values.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            value = getattr(self.owner, node.attr, None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _of(self, node: ast.AST) -> str:
        """The name of the tokens that an expression contains whole, in part or reshaped; otherwise empty."""
        match node:
            case ast.Name(id=name):
                return name if name in self.names else self.variables.get(name, "")
            case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))) if name in self.names:
                return name
            case ast.Attribute(attr=name) if name in _NOT_IDS:
                return ""
            case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=ast.Attribute() as inner):
                return self._of(inner)
        return ""


def _assigned(target: ast.AST, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Each variable that an assignment sets, with its value; a tuple assignment (``a, b = x, y``) sets several."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, other)
