"""Definitions in a module's source: the names that they use, and the statement that defines a name."""

import ast
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from rl_sentinel.audit.repro.definitions import assignment, imported_from, names_used, remove_docstrings
from rl_sentinel.audit.repro.literal import Unwritable

SOURCE = """
    from math import floor
    from math import ceil as up
    from json import (
        dumps,
    )

    Row = list[int]
    LIMIT: int = 3
    first, second = 1, 2
    declared: int
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with aliases, imports, and names that no single statement defines."""
    (tmp_path / "definitions_specimen.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "definitions_specimen", raising=False)
    return __import__("definitions_specimen")


@pytest.mark.parametrize(
    ("name", "statement"),
    [("Row", "Row = list[int]"), ("LIMIT", "LIMIT: int = 3"), ("first", None), ("declared", None), ("floor", None)],
)
def test_assignment_of_one_name(module: ModuleType, name: str, statement: str | None) -> None:
    found = assignment(name, module)
    assert (None if found is None else ast.unparse(found)) == statement


def test_module_of_an_import(module: ModuleType) -> None:
    assert imported_from("floor", module).__name__ == "math"
    assert imported_from("dumps", module).__name__ == "json"


@pytest.mark.parametrize("name", ["up", "ceil", "first", "absent"])
def test_name_that_is_not_imported_under_it_cannot_be_written(module: ModuleType, name: str) -> None:
    with pytest.raises(Unwritable, match=f"{name} of definitions_specimen is neither assigned nor imported"):
        imported_from(name, module)


def test_names_in_annotations_are_not_used() -> None:
    tree = ast.parse("def f(a: A, *b: B) -> C:\n    d: D = e\n    return g(a)")
    assert set(names_used(tree)) == {"d", "e", "g", "a"}


def test_docstrings_of_nested_definitions_are_removed() -> None:
    tree = ast.parse(
        'class A:\n    "Only text."\n    \ndef f():\n    "Text."\n    def g():\n        "T"\n        return "kept"'
    )
    remove_docstrings(tree)
    assert ast.unparse(tree).split() == ["class", "A:", "pass", "def", "f():", "def", "g():", "return", "'kept'"]
