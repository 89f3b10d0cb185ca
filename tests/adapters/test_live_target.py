"""A function object of this process as a target: its name, its file, and the folder that names are relative to."""

import importlib
import sys
from pathlib import Path

import pytest

from rl_sentinel.adapters.live_target import live_target, spec_of
from rl_sentinel.core.errors import Unbindable

CODE = "def advantages(rewards):\n    return rewards\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "outer_package" / "inner").mkdir(parents=True)
    (tmp_path / "outer_package" / "inner" / "advantage.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_files_are_relative_to_the_folder_above_the_package(package: Path) -> None:
    function = importlib.import_module("outer_package.inner.advantage").advantages
    target = live_target(function)
    assert target.root == package.resolve()
    assert target.source(function) == ("outer_package/inner/advantage.py", 1)
    assert target.path == "outer_package.inner.advantage.advantages"
    assert spec_of(function) == "outer_package.inner.advantage:advantages"


def test_a_module_under_another_name_is_relative_to_its_own_folder(package: Path) -> None:
    folder = package / "outer_package" / "inner"
    spec = importlib.util.spec_from_file_location("elsewhere.advantage", folder / "advantage.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        target = live_target(module.advantages)
    finally:
        del sys.modules[spec.name]
    assert target.root == folder.resolve()
    assert target.source(module.advantages) == ("advantage.py", 1)


def test_a_function_of_c_is_refused() -> None:
    with pytest.raises(Unbindable, match="expected a Python function"):
        live_target(len)
