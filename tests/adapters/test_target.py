"""The gate to a target: what is there, what is absent, what fails."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import Absent, Unbindable

NAME = "gate_specimen"


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A package with a sound module, one that fails, and a name from elsewhere."""
    home = tmp_path / NAME
    home.mkdir()
    (home / "__init__.py").write_text("", encoding="utf-8")
    (home / "sound.py").write_text("from json import dumps\n\n\ndef f():\n    return 1\n", encoding="utf-8")
    (home / "broken.py").write_text("raise RuntimeError('no')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (home / "layout").mkdir()
    (home / "layout" / "moved.py").write_text("def f():\n    return 2\n", encoding="utf-8")
    (home / "engine").mkdir()
    (home / "engine" / "__init__.py").write_text("def named():\n    return 3\n", encoding="utf-8")
    yield Target(root=tmp_path, package=NAME)
    for name in [n for n in sys.modules if n.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_what_is_there_is_found(target: Target) -> None:
    assert target.call(f"{NAME}.sound.f") == 1
    assert target.source(target.find(f"{NAME}.sound.f")) == (f"{NAME}/sound.py", 4)
    assert target.has(f"{NAME}.sound.f")
    assert target.fails(f"{NAME}.sound.f") == ""


def test_what_moved_is_found(target: Target) -> None:
    assert target.call("former_name.engine.moved.f") == 2
    assert target.contains("former_name.engine.moved.f")
    assert target.locate("former_name.engine.moved.f") == f"{NAME}.layout.moved.f"
    assert target.locate(f"{NAME}.sound.f") == f"{NAME}.sound.f"


def test_what_was_renamed_is_found(target: Target) -> None:
    """A longer name goes first, and a tree that has the new name does not look for the earlier one."""
    newer = f"{NAME}.trainers.base"
    names = {newer: f"{NAME}.sound", f"{newer}.g": f"{NAME}.layout.moved.f", f"{NAME}.engine": f"{NAME}.sound"}
    renamed = Target(root=target.root, package=NAME, earlier=names)
    assert renamed.call(f"{newer}.f") == 1
    assert renamed.call(f"{newer}.g") == 2
    assert renamed.locate(f"{newer}.absent") == f"{NAME}.sound.absent"
    assert renamed.locate(f"{newer}s.f") == f"{newer}s.f"
    assert renamed.call(f"{NAME}.engine.named") == 3


def test_renamed_name_of_a_package_is_found(target: Target) -> None:
    """A package that lacks the new name has the earlier one; one that has a module of this name does not."""
    names = {f"{NAME}.engine.newer": f"{NAME}.engine.named", f"{NAME}.engine.named": f"{NAME}.sound.f"}
    names |= {f"{NAME}.layout.moved": f"{NAME}.sound", f"{NAME}.layout": f"{NAME}.sound"}
    renamed = Target(root=target.root, package=NAME, earlier=names)
    assert renamed.call(f"{NAME}.engine.newer") == 3
    assert renamed.locate(f"{NAME}.layout.moved") == f"{NAME}.layout.moved"
    assert renamed.locate(f"{NAME}.layout") == f"{NAME}.layout"
    assert renamed.call(f"{NAME}.engine.named") == 3


def test_module_that_left_its_package_is_found(target: Target) -> None:
    assert target.call(f"{NAME}.engine.moved.f") == 2
    assert target.locate(f"{NAME}.engine.moved.f") == f"{NAME}.layout.moved.f"
    assert target.call(f"{NAME}.engine.named") == 3
    assert target.locate(f"{NAME}.engine.named") == f"{NAME}.engine.named"


@pytest.mark.parametrize("path", [f"{NAME}.sound.g", f"{NAME}.nowhere.f", "elsewhere.f"])
def test_what_is_absent_does_not_fail(target: Target, path: str) -> None:
    assert not target.has(path)
    assert target.fails(path) == ""
    with pytest.raises(Absent):
        target.find(path)


def test_what_fails_is_told(target: Target) -> None:
    path = f"{NAME}.broken.f"
    assert target.has(path)  # there, if of no use
    assert target.fails(path) == f"{NAME}.broken cannot be imported (RuntimeError: no)"
    assert target.broken == {f"{NAME}.broken": target.fails(path)}
    with pytest.raises(
        Unbindable,
        match=r"is defined in .*json.*, expected a file in the target's folder /.*: name it in the module that",
    ):
        target.find(f"{NAME}.sound.dumps")
    with pytest.raises(
        Unbindable, match=r"^len is defined in no file, expected a file in the target's folder /.*: define a"
    ):
        target.source(len)
    with pytest.raises(
        Unbindable, match=r"^an object of type partial has no file, expected a function written with def"
    ):
        target.source(partial(len))
    with pytest.raises(Unbindable, match=r"^builtins is imported from no file, expected a file in the target's folder"):
        target.module("builtins")
