"""The state of a folder: text of Python files, size and time of others."""

import os
from pathlib import Path

import pytest

from rl_sentinel.audit.source.tree_state import TreeState, changes, tree_state


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "house" / "__pycache__").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("house/__init__.py", "house/__pycache__/x.pyc", ".git/HEAD", "house/config.yaml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "house" / "loss.py").write_text("def loss():\n    return 1\n", encoding="utf-8")
    return tmp_path


def _state(tree: Path) -> TreeState:
    state = tree_state(tree)
    assert state is not None
    return state


def test_state_is_read_and_stored(tree: Path) -> None:
    state = _state(tree)
    assert set(state.texts) == {"house/__init__.py", "house/loss.py"}
    assert set(state.others) == {"house/config.yaml"}
    assert TreeState.from_json(state.as_json()) == state


def test_change_of_a_body(tree: Path) -> None:
    before = _state(tree)
    os.utime(tree / "house" / "__init__.py")  # another time, the same text
    (tree / "house" / "loss.py").write_text("def loss():\n    return 2\n", encoding="utf-8")
    changed = changes(before, _state(tree))
    assert changed is not None
    assert {file: set(change.functions) for file, change in changed.items()} == {"house/loss.py": {1}}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("house/loss.py", "SCALE = 1\n\n\ndef loss():\n    return 1\n"),
        ("house/config.yaml", "gamma: 1\n"),
        ("house/new.yaml", ""),
        ("torch.py", ""),  # shadows an installed package
        ("house/loss/__init__.py", ""),  # shadows a module
        ("house/loss.py", "def loss(:\n"),
    ],
)
def test_any_other_change(tree: Path, file: str, text: str) -> None:
    before = _state(tree)
    (tree / file).parent.mkdir(exist_ok=True)
    (tree / file).write_text(text, encoding="utf-8")
    assert changes(before, _state(tree)) is None
    (tree / file).unlink()
    assert changes(before, _state(tree)) is None or file not in before.texts


def test_bytes_that_are_no_text_count_by_size_and_time(tree: Path) -> None:
    (tree / "house" / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    assert "house/latin.py" in _state(tree).others


def test_linked_folder_has_no_state(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "house", target_is_directory=True)
    assert tree_state(tree) is None
