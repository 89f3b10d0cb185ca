"""Read definitions in the source of a module: which names they use, and which statement defines a name."""

import ast
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.core.type_parameters import parse_source


def assignment(name: str, module: ModuleType) -> Any:  # noqa: ANN401 - an ast.Assign or ast.AnnAssign with a value
    """The statement ``name = …`` or ``name: type = …`` at the top of a module; None if it does not exist."""
    for statement in parse_source(inspect.getsource(module)).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr())
            ) if target == name:
                return statement
    return None


def imported_from(name: str, module: ModuleType) -> ModuleType:
    """The module from which ``module`` imports ``name`` by ``from ... import``; raises Unwritable without an import."""
    for statement in parse_source(inspect.getsource(module)).body:
        match statement:
            case ast.ImportFrom(module=str(home), level=0) if any(
                a.name == name and a.asname in (None, name) for a in statement.names
            ):
                return sys.modules[home]
    message = (
        f"{name} of {module.__name__} is neither assigned nor imported by name there, so a script cannot define it"
    )
    raise Unwritable(message)


def names_used(tree: ast.AST) -> Iterator[str]:
    """Names that are evaluated when the source runs; annotations are not evaluated.

    Example:
        >>> import ast
        >>> from rl_sentinel.audit.repro.definitions import names_used
        >>> list(names_used(ast.parse("total: Tensor = a + a * b")))
        ['total', 'a', 'b']
    """
    skipped = {
        id(inner) for node in ast.walk(tree) for annotation in _annotations(node) for inner in ast.walk(annotation)
    }
    yield from dict.fromkeys(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in skipped
    )


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation


def remove_docstrings(tree: ast.AST) -> None:
    r"""Remove the docstrings of all functions and classes of a tree, in place.

    Example:
        >>> import ast
        >>> from rl_sentinel.audit.repro.definitions import remove_docstrings
        >>> tree = ast.parse("def f():\n    'Text.'\n    return 1")
        >>> remove_docstrings(tree)
        >>> print(ast.unparse(tree))
        def f():
            return 1
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
