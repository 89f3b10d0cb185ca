"""The walk that finds plugins, on a package of the test's own."""

import importlib
from pathlib import Path

import pytest

from rl_sentinel.core.modules import defined

FILES = {
    "__init__.py": "THING = 'the package itself'",
    "zeta.py": "THING = 3",
    "alpha.py": "THING = None",
    "other.py": "thing = 1",
    "taken.py": "from .zeta import THING",
    "inner/__init__.py": "THING = 'a folder'",
    "inner/deep.py": "THING = 'too deep'",
    "notes.txt": "THING = 5",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with plugins, others, and a folder."""
    root = tmp_path / f"walked_{tmp_path.name.replace('-', '_')}"
    for name, text in FILES.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return root


def test_modules_and_folders_that_define_the_name(package: Path) -> None:
    found = defined(importlib.import_module(package.name), "THING")
    assert list(found.items()) == [("alpha", None), ("inner", "a folder"), ("taken", 3), ("zeta", 3)]
    assert defined(importlib.import_module(package.name), "NOTHING") == {}


def test_a_module_that_does_not_import_is_not_passed_over(package: Path) -> None:
    """A plugin that is broken would else be missing without a word."""
    (package / "broken.py").write_text("raise RuntimeError('no such library')", encoding="utf-8")
    with pytest.raises(RuntimeError, match="no such library"):
        defined(importlib.import_module(package.name), "THING")
