"""Where a source may be changed, and what it reads like afterwards."""

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mutants.operators import OPERATORS, Operator

Step = tuple[str, int | None]

#: The way to a node, the node, the function that it belongs to, and whether it only decides what is refused.
Site = tuple[tuple[Step, ...], ast.AST, str, bool]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

#: Modules that only refuse.
CONTRACTS = frozenset({"kernels/argument_checks.py", "requirements.py", "trajectory_step.py", "validation.py"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one module.

    ``tree`` is the whole module with the change, on the lines of the original. ``contract`` is True where the changed
    code only decides what is refused. ``old`` and ``new`` are the changed node and what stands in its place.
    """

    module: str
    function: str
    line: int
    operator: str
    before: str
    after: str
    number: int
    tree: ast.Module
    contract: bool = False
    old: ast.AST | None = None
    new: ast.AST | None = None

    @property
    def name(self) -> str:
        """Module, function and change, in one line that stays when lines move."""
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.module} {self.function}: {self.before} -> {self.after}{again}"


def mutants(module: str, source: str, operators: Mapping[str, Operator] = OPERATORS) -> Iterator[Mutant]:
    """Every change that the operators make to the code of a module, each source once.

    Not changed: docstrings, annotations, decorators, constants of a module, and the wording of errors (branches that
    end by raising, and f-strings).
    """
    tree = ast.parse(source)
    seen, numbers = set(map(ast.unparse, tree.body)), Counter[tuple[str, str, str]]()
    # An operator may have written torch in.
    imported = ast.fix_missing_locations(ast.Import([ast.alias("torch")]))
    whole = module in CONTRACTS
    for steps, node, function, contract in _sites(tree, (), "", _read_to_refuse(tree), contract=whole):
        at = steps[0][1] or 0
        for operator, change in operators.items():
            for fresh in change(node):
                statement = ast.fix_missing_locations(_replaced(tree.body[at], steps[1:], fresh))
                if (text := ast.unparse(statement)) in seen:
                    continue
                seen.add(text)
                other = ast.Module([*tree.body[:at], statement, *tree.body[at + 1 :], imported], tree.type_ignores)
                line, words = getattr(node, "lineno", 0), (function, _short(node), _short(fresh))
                numbers[words] += 1
                number = numbers[words]
                yield Mutant(module, function, line, operator, words[1], words[2], number, other, contract, node, fresh)


def _short(node: ast.AST) -> str:
    line = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return line if len(line) <= 90 else f"{line[:87]}..."


def _sites(
    node: ast.AST, steps: tuple[Step, ...], function: str, refusing: frozenset[str], *, contract: bool
) -> Iterator[Site]:
    if function:
        yield steps, node, function, contract
    if isinstance(node, _FUNCTIONS):
        refusing |= _read_to_refuse(node)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not _left_alone(node, name, child, at):
                refuses = contract or _only_refuses(node, name, child, refusing)
                way = (*steps, (name, at))
                yield from _sites(child, way, _outer(node, child, function), refusing, contract=refuses)


def _only_refuses(parent: ast.AST, name: str, child: ast.AST, refusing: frozenset[str]) -> bool:
    """A condition that raises, a check, a function that requires something, or what only these and messages read."""
    if isinstance(parent, ast.If) and name == "test":
        return isinstance(parent.body[-1], ast.Raise)
    if isinstance(child, ast.Assign):
        return all(isinstance(to, ast.Name) and to.id in refusing for to in child.targets)
    if isinstance(child, ast.FunctionDef):
        required = child.name.lstrip("_").startswith(("require_", "validate", "explain_"))
        return required or (child.name.startswith("_") and child.name in refusing)
    return _is_check(child)


def _is_check(node: ast.AST) -> bool:
    """A call whose result is dropped, or a condition under which nothing happens but checks.

    A function whose name ends with an underscore changes its argument, as torch has it.
    """
    if isinstance(node, ast.If):
        return not node.orelse and (isinstance(node.body[-1], ast.Raise) or all(map(_is_check, node.body)))
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return isinstance(called, ast.Name) and not called.id.endswith("_")


def _read_to_refuse(scope: ast.AST) -> frozenset[str]:
    """The names that a scope reads in checks and messages only."""
    checks = [n for n in ast.walk(scope) if isinstance(n, ast.Raise | ast.JoinedStr) or _is_check(n)]
    there = {id(n) for check in checks for n in ast.walk(check)}
    read = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return frozenset(n.id for n in read) - {n.id for n in read if id(n) not in there}


def _outer(parent: ast.AST, child: ast.AST, function: str) -> str:
    """What a child belongs to: a function or method as its module has it, whatever is written inside."""
    if isinstance(parent, _FUNCTIONS) or not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
        return function
    return f"{function}.{child.name}" if function else child.name


def _left_alone(parent: ast.AST, name: str, child: ast.AST, at: int | None) -> bool:
    if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
        return True
    if _is_wording(child) or (isinstance(child, ast.Return) and child.value is not None and _is_wording(child.value)):
        return True
    if isinstance(child, ast.Raise | ast.arguments | ast.Import | ast.ImportFrom):
        return not isinstance(child, ast.arguments)
    if isinstance(parent, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign | ast.Expr):
        return True
    if isinstance(parent, ast.ClassDef) and isinstance(child, ast.AnnAssign):
        return True
    return isinstance(parent, ast.If) and name == "body" and at is not None and isinstance(parent.body[-1], ast.Raise)


def _is_wording(node: ast.AST) -> bool:
    """A sentence with values in it, or the choice of one of two."""
    if isinstance(node, ast.IfExp):
        return _is_wording(node.body) and _is_wording(node.orelse)
    return isinstance(node, ast.JoinedStr)


def _replaced(whole: Any, steps: tuple[Step, ...], fresh: ast.AST) -> Any:  # noqa: ANN401 - any kind of node
    """The node with ``fresh`` where ``steps`` lead to; what lies on the way there is new, the rest is shared."""
    if not steps:
        return copy.deepcopy(fresh)
    (name, at), new = steps[0], copy.copy(whole)
    value = getattr(whole, name)
    if at is None:
        setattr(new, name, _replaced(value, steps[1:], fresh))
    else:
        setattr(new, name, [*value[:at], _replaced(value[at], steps[1:], fresh), *value[at + 1 :]])
    return new
