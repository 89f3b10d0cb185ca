"""A framework's tree with one mutant in it, in a scratch folder."""

import ast
import copy
import difflib
import shutil
import textwrap
from pathlib import Path

from mutants.sites import Mutant


def changed(source: str, mutant: Mutant) -> str:
    """The source with the mutant's change in its text, so that comments and all other lines stay."""
    old, new = mutant.old, mutant.new
    if not (isinstance(old, ast.expr | ast.stmt) and new is not None):
        raise TypeError(f"mutant {mutant.name} changes {old!r}, expected an expression or a statement")
    lines = source.splitlines(keepends=True)
    start, end = _offset(lines, old.lineno, old.col_offset), _offset(lines, old.end_lineno, old.end_col_offset)
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(new)))
    if isinstance(old, ast.stmt):
        text = textwrap.indent(text, " " * old.col_offset).lstrip()
    elif not isinstance(old, ast.Slice):
        text = f"({text})"
    # An operator may have written torch in; at the end, so that no line moves.
    imported = "" if "\nimport torch\n" in f"\n{source}" or "torch.ones_like" not in text else "\nimport torch\n"
    return source[:start] + text + source[end:] + imported


def _offset(lines: list[str], line: int | None, column: int | None) -> int:
    """The index of a position of ``ast``, whose columns count bytes."""
    if line is None or column is None:
        raise TypeError("a node without its end cannot be replaced")
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def planted(root: Path, package: str, mutant: Mutant, scratch: Path) -> Path:
    """A copy of the package with the mutant in it; what lies beside the package is linked."""
    shutil.copytree(root / package, scratch / package, ignore=shutil.ignore_patterns("__pycache__"))
    for beside in root.iterdir():
        if beside.name != package and not (scratch / beside.name).exists():
            (scratch / beside.name).symlink_to(beside)
    place = scratch / mutant.module
    place.write_text(changed(place.read_text(encoding="utf-8"), mutant), encoding="utf-8")
    return scratch


def difference(source: str, mutant: Mutant) -> str:
    """The changed lines, before and after, without what they have in common."""
    lines = difflib.unified_diff(source.splitlines(), changed(source, mutant).splitlines(), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
