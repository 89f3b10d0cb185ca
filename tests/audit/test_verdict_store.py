"""Stored verdicts: an unchanged audit is answered from disk, and every change that could matter is noticed."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit_fixtures import checkout
from rl_sentinel.audit import verdict_store
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.verdict_store import stored_or_run

VERDICT = {"event": "verdict", "law": "A", "boundary": "m.f", "setting": "default", "outcome": "holds", "tried": 1}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Audit the tree in ``tree`` with a worker of one verdict; the answer is whether it came from the store."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(_library(tmp_path))])
    root = checkout(tmp_path / "tree")

    def answer(*, fresh: bool = False, event: dict[str, Any] = VERDICT, **more: Any) -> bool:
        monkeypatch.setattr(verdict_store, "events", lambda *_: (e for e in [event]))
        about = {"task": "audit", "framework": "verl", "root": str(root), "version": "", "target": {"digest": "x"}}
        made = [*stored_or_run(Request(**{**about, **more}), sys.executable, fresh=fresh)]
        assert made[-1] == event
        return made[0] == {"event": "stored"}

    return answer


def _library(folder: Path) -> Path:
    """A folder of the interpreter's path with one module."""
    place = folder / "site"
    place.mkdir()
    (place / "dependency.py").write_text("", encoding="utf-8")
    return place


def test_unchanged_audit_is_answered_from_the_store(ask: Callable[..., bool]) -> None:
    assert [ask(), ask(), ask(jobs=5), ask(fresh=True), ask()] == [False, True, True, False, True]


@pytest.mark.parametrize("option", [{"seed": 1}, {"budget": 3}, {"laws": ("A",)}, {"overlays": ("x",)}])
def test_other_options_ask_again(ask: Callable[..., bool], option: dict[str, Any]) -> None:
    assert [ask(), ask(**option), ask()] == [False, False, True]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tree/verl/trainer/ppo/core_algos.py", "EPSILON = 1e-6\n"),  # a constant
        ("tree/verl/utils.py", "def helper(): ...\n"),  # a helper function
        ("tree/verl/unrelated.py", "x = 1\n"),
        ("tree/verl/config.yaml", "gamma: 1\n"),
        ("tree/torch.py", "raise ImportError\n"),  # shadows an installed package
        ("tree/verl/trainer/ppo/core_algos/__init__.py", ""),  # shadows a module
        ("site/dependency.py", "x = 1\n"),
        ("site/new_dependency.py", ""),
    ],
)
def test_change_of_a_file_asks_again(ask: Callable[..., bool], tmp_path: Path, file: str, text: str) -> None:
    place = tmp_path / file
    place.parent.mkdir(exist_ok=True)
    assert [ask(), ask()] == [False, True]
    place.write_text(text, encoding="utf-8")
    assert [ask(), ask()] == [False, True]


def test_other_bytes_of_one_size_and_time_ask_again(ask: Callable[..., bool]) -> None:
    assert [ask(target={"digest": "x"}), ask(target={"digest": "y"})] == [False, False]


REASONS = (
    "the call took more than 20 s",
    "the call was killed by signal 9",
    "MemoryError: ",
    "is in f, where an earlier call did not return",
)


@pytest.mark.parametrize("reason", REASONS)
def test_verdict_by_chance_is_not_stored(ask: Callable[..., bool], reason: str) -> None:
    event = VERDICT | {"outcome": "errored", "tried": 0, "reason": reason}
    assert [ask(event=event), ask(event=event)] == [False, False]


def test_function_of_a_user_is_always_asked(ask: Callable[..., bool]) -> None:
    assert [ask(function="m:f"), ask(function="m:f")] == [False, False]


def test_damaged_store_is_asked_again(ask: Callable[..., bool], tmp_path: Path) -> None:
    assert [ask(), ask()] == [False, True]
    (file,) = (tmp_path / "cache/verdicts").glob("*.json")
    file.write_text(file.read_text(encoding="utf-8").replace("holds", "broken"), encoding="utf-8")
    assert [ask(), ask()] == [False, True]
