"""Examples in docstrings are whole: pasted into a fresh interpreter, each gives what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

import rl_sentinel

PACKAGE = Path(rl_sentinel.__file__).parent

#: Modules that import the framework that they are for.
THEIRS = {"remedies.verl", "remedies.skyrl"}

#: Packages whose examples a reader is shown; those of ``cases`` are for who works on laws, and run in their module.
SHOWN = ("audit", "cli", "core", "frameworks", "laws", "remedies", "report", "signal", "train")


def _modules() -> list[str]:
    """Those with an example."""
    paths = [p for folder in SHOWN for p in sorted((PACKAGE / folder).rglob("*.py")) if ">>>" in p.read_text("utf-8")]
    names = {".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for p in paths}
    return sorted(names - THEIRS)


MODULES = _modules()


def _untold(module: object) -> list[str]:
    """What examples of a module say when they are run without any name of it; nothing where they are whole."""
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, globs={}):
        runner.run(test, out=told.append)
    return told


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_whole(name: str) -> None:
    told = _untold(importlib.import_module(f"rl_sentinel.{name}"))
    assert not told, "\n".join(told)


def test_every_part_of_the_signal_library_shows_examples() -> None:
    parts = {".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in (PACKAGE / "signal").rglob("*.py")}
    assert {p for p in parts - set(MODULES) if not p.endswith("__init__") and ".kernels." not in p} == set()


def test_what_is_not_whole_is_told() -> None:
    def example() -> None:
        """An example.

        >>> PACKAGE.name
        'rl_sentinel'
        """

    assert "NameError: name 'PACKAGE' is not defined" in "".join(_untold(example))
