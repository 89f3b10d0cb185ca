"""Weights & Biases, where it is asked for."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report.weights_and_biases import ASKED_BY, WeightsAndBiases


class _Wandb:
    """What is called of wandb."""

    Error = RuntimeError

    def __init__(self) -> None:
        self.key = True
        self.started: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.finished = 0

    def Settings(self, **_: Any) -> None:  # noqa: N802 - wandb's own name
        return None

    def init(self, **settings: Any) -> Any:
        if not self.key:
            raise self.Error("no API key\nat all")
        self.started.append(settings)

        def finish() -> None:
            self.finished += 1

        return SimpleNamespace(log=lambda numbers, *, step: self.logged.append((step, numbers)), finish=finish)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> _Wandb:
    for name in ASKED_BY:
        monkeypatch.delenv(name, raising=False)
    fake = _Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def _write(folder: Path) -> None:
    board = WeightsAndBiases(folder, {"seed": 3})
    board.step({"step": 1, "reward": 0.5}, {"step": 1, "seconds": 2.0})
    board.evaluation(1, {"accuracy": 0.25})
    board.close()


def test_steps_times_and_evaluations_are_written(
    tmp_path: Path, wandb: _Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run has the same id, another folder another one."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        _write(folder)
    assert wandb.logged[:2] == [(1, {"reward": 0.5, "time/seconds": 2.0}), (1, {"evaluation/accuracy": 0.25})]
    ids = [started["id"] for started in wandb.started]
    assert ids[0] == ids[1] != ids[2]
    assert (wandb.started[0]["dir"], wandb.started[0]["config"]) == (tmp_path / "a", {"seed": 3})
    assert wandb.finished == 3


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, wandb: _Wandb) -> None:
    _write(tmp_path)
    assert wandb.started == []


def test_wandb_that_cannot_start_is_one_line(tmp_path: Path, wandb: _Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    wandb.key = False
    with pytest.raises(
        SentinelError, match=r"^wandb cannot start \(no API key at all\): log in, set WANDB_MODE=offline"
    ):
        _write(tmp_path)


def test_missing_package_is_no_error(tmp_path: Path, wandb: _Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setitem(sys.modules, "wandb", None)
    _write(tmp_path)
    assert wandb.started == []
