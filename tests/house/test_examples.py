"""Examples in docstrings: each public part of the signal library has some, and they are whole."""

import doctest
from pathlib import Path
from types import SimpleNamespace

import rl_sentinel
from conftest import require_whole_examples

PACKAGE = Path(rl_sentinel.__file__).parent


def test_every_part_of_the_signal_library_shows_examples() -> None:
    paths = [p for p in (PACKAGE / "signal").rglob("*.py") if p.stem != "__init__" and "kernels" not in p.parts]
    assert [p for p in paths if ">>>" not in p.read_text("utf-8")] == []


def test_an_example_that_is_not_whole_fails() -> None:
    test = doctest.DocTestParser().get_doctest(">>> name\n3\n", {"name": 3}, "", None, None)
    results = []
    for folder in ("search", "signal"):
        require_whole_examples([SimpleNamespace(dtest=test, path=PACKAGE / folder / "module.py")])
        results.append(doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False))
    assert [failed for failed, _ in results] == [0, 1]
