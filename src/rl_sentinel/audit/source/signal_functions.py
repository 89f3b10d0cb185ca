"""Find functions in a source tree that compute on the training signal, by static analysis without imports."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rl_sentinel.core.type_parameters import parse_source

#: Role of a value in the training signal -> pattern of the names of its parameters and keys, matched as a whole.
ROLES = {
    "advantage": r"advantages?|advs?",
    "log-prob": r"(\w+_)?(log_?probs?|logps?|logp)(_\w+)?",
    "mask": r"(response|loss|action|completion|eos|tool|rejection)_?masks?",
    "reward": r"(token_level_)?(rewards?|scores?)|rm_scores|token_level_(rewards|scores)|\w+_rewards?",
    "value": r"(old_)?(values?|vpreds?|returns)",
    "kl": r"kls?|kld|ref_kl|kl_(loss|penalty|coef|ctrl)\w*",
    "ratio": r"(log_)?ratios?|(rollout_)?is_weights|importance_\w+",
    "tokens": r"(response|completion|prompt|input)_?(ids|tokens)|responses",
    "group": r"uids?|group_(ids|index)|prompt_index",
}

_PATTERNS = {role: re.compile(pattern) for role, pattern in ROLES.items()}

#: A function needs one of these roles; ``value``, ``tokens`` and ``group`` alone are too common.
_SIGNAL = frozenset({"advantage", "log-prob", "mask", "reward", "kl", "ratio"})

#: Folders whose functions do not run in training.
_SKIPPED_FOLDERS = frozenset({"tests", "test", "examples", "docs", "scripts", "third_party", "benchmarks"})

#: Methods of tensors and arrays that show that a function computes and does not only pass values on.
_COMPUTES = frozenset(
    {"abs", "clamp", "clip", "cumsum", "exp", "gather", "log", "log_softmax", "masked_fill", "masked_mean"}
    | {"masked_sum", "masked_select", "max", "mean", "min", "norm", "prod", "scatter", "softmax", "std", "sum"}
    | {"var", "where"}
)


@dataclass(frozen=True, slots=True, order=True)
class SignalFunction:
    """A function of the signal path: file, line, name, and the roles of its parameters and keys."""

    file: str
    name: str
    line: int
    roles: tuple[str, ...]


def signal_functions(root: Path, package: str) -> list[SignalFunction]:
    """The functions of a package that compute on at least two roles, not only on values, tokens and groups.

    Folders of tests, examples and the like are skipped, and so are files that cannot be parsed.
    """
    functions = list[SignalFunction]()
    for file in sorted((root / package).rglob("*.py")):
        relative = file.relative_to(root)
        if _SKIPPED_FOLDERS.isdisjoint(relative.parts):
            functions += _functions_of(file, relative.as_posix())
    return functions


def _functions_of(file: Path, relative: str) -> Iterator[SignalFunction]:
    try:
        tree = parse_source(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for name, node in functions_in(tree):
        roles = roles_in(node)
        if len(roles) > 1 and _SIGNAL & set(roles) and computes(node):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            yield SignalFunction(relative, name, first, roles)


def functions_in(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions and methods at the top of a module or class, with their qualified names.

    Those in ``if``, ``try`` and ``with`` blocks there are included, but not those in ``except`` or other blocks.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{within}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from functions_in(child, f"{within}{child.name}.")
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            yield from functions_in(child, within)


def roles_in(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[str, ...]:
    """The roles of the parameters of a function and of the keys that it reads or writes."""
    arguments = node.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
            names.add(str(inner.slice.value))
        elif isinstance(inner, ast.Call) and _called_name(inner) in ("get", "pop"):
            names.update(str(a.value) for a in inner.args[:1] if isinstance(a, ast.Constant))
    return tuple(role for role, pattern in _PATTERNS.items() if any(pattern.fullmatch(name) for name in names))


def computes(node: ast.AST) -> bool:
    """Whether the code contains a tensor operation such as a sum or a clamp, or a product, difference or quotient."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and _called_name(inner) in _COMPUTES:
            return True
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Mult, ast.Sub, ast.Div)):
            return True
    return False


def _called_name(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
