"""Which mutants of a framework are tried: functions of its signal path that boundaries enter, drawn by a seed."""

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.frameworks.operators import PATH_OPERATORS
from mutants.sites import Mutant, mutants
from rl_sentinel.audit.source.signal_functions import computes, functions_in, roles_in

#: A file and the qualified name of a function in it.
Function = tuple[str, str]

#: Boundary -> the functions of the tree that its smoke check enters; nested ones count as the outer one.
Entered = Mapping[str, frozenset[Function]]


@dataclass(frozen=True, slots=True)
class Reach:
    """The unchanged framework: which functions each boundary enters."""

    entered: Entered

    def boundaries(self, mutant: Mutant) -> list[str]:
        """The boundaries that enter the mutated function; those that enter the least besides come first."""
        place = (mutant.module, mutant.function)
        paths = [path for path, functions in self.entered.items() if place in functions]
        return sorted(paths, key=lambda path: (len(self.entered[path]), path))

    def functions(self) -> set[Function]:
        """All functions that some boundary enters."""
        return {function for functions in self.entered.values() for function in functions}


def function_of(entry: str) -> Function:
    """The file and the outer function of an entry of a call trace, ``file:line:qualified name``."""
    file, _, name = entry.split(":", 2)
    return file, name.partition(".<locals>")[0]


def path_mutants(root: Path, functions: set[Function]) -> Iterator[Mutant]:
    """All mutants of the functions that compute on the training signal: on a mask, a log-prob, a reward and so on."""
    for file in sorted({file for file, _ in functions}):
        source = (root / file).read_text(encoding="utf-8")
        of_path = {name for name, node in functions_in(ast.parse(source)) if _of_path(node)}
        wanted = {name for name in of_path if (file, name) in functions}
        if wanted:
            found = mutants(file, source, PATH_OPERATORS)
            yield from (m for m in found if m.function in wanted and not m.contract)


def drawn(candidates: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants, at most one of a function: function, operator and place are each drawn by their hash.

    A place drawn from all would mostly lie in the longest functions, and be of the most frequent operators.
    """
    by_function: dict[Function, dict[str, list[Mutant]]] = {}
    for mutant in candidates:
        by_function.setdefault((mutant.module, mutant.function), {}).setdefault(mutant.operator, []).append(mutant)
    chosen = sorted(by_function, key=lambda function: _lot(" ".join(function), seed))[:count]
    return [_one_of(by_function[function], " ".join(function), seed) for function in chosen]


def _one_of(by_operator: Mapping[str, Sequence[Mutant]], function: str, seed: int) -> Mutant:
    operator = min(by_operator, key=lambda name: _lot(f"{function} {name}", seed))
    return min(by_operator[operator], key=lambda m: _lot(m.name, seed))


def _of_path(node: ast.AST) -> bool:
    """Whether a function computes on the signal; a reduction that has a mask alone is of the path, too."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not computes(node):
        return False
    return bool(roles_in(node)) or "mask" in {a.arg for a in node.args.args}


def _lot(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()
