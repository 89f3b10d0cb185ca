"""Resume: what a killed run leaves behind a checkpoint is taken back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.run import persistence
from rl_sentinel.train.run.checkpoint import load_newest
from rl_sentinel.train.run.checkpoint_writer import CheckpointWriter
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from training import folder_cache, recipe


def test_times_of_a_step_that_was_killed_after_its_checkpoint_are_missing(tmp_path: Path) -> None:
    more: dict[str, Any] = {"checkpoint": {"every": 1}}
    train(recipe(tmp_path, steps=3, **more), cache=folder_cache(tmp_path / "cache"))
    timing = tmp_path / "timing.jsonl"
    timing.write_bytes(b"".join(timing.read_bytes().splitlines(keepends=True)[:-1]))
    train(recipe(tmp_path, steps=5, **more), cache=folder_cache(tmp_path / "cache"))
    assert [line["step"] for line in read_metrics(timing)] == [1, 2, 4, 5]
    assert read_metrics(timing)[0]["checkpoint_seconds"] > 0


def test_logs_are_truncated_to_the_checkpoint(tmp_path: Path) -> None:
    more: dict[str, Any] = {"steps": 4, "checkpoint": {"every": 2}}
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    before = (tmp_path / "completions.jsonl").read_bytes()
    with (tmp_path / "completions.jsonl").open("a") as file:
        file.write(json.dumps({"step": 5})[:-1])
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    assert (tmp_path / "completions.jsonl").read_bytes() == before


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    state = load_newest(folder / "checkpoints").state
    assert state is not None
    weights: dict[str, torch.Tensor] = state["weights"]
    return weights


def test_a_checkpoint_in_the_background_has_the_state_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is written only when the second is due, after another step has changed the weights."""
    more: dict[str, Any] = {"steps": 2, "checkpoint": {"every": 1, "background": True}}
    usual, later = CheckpointWriter.write, list[Callable[[], object]]()

    def hold_back(self: CheckpointWriter, save: Callable[[], object]) -> None:
        later.append(save)
        if len(later) == 2:
            for one in later:
                usual(self, one)

    train(recipe(tmp_path / "one", steps=1), cache=folder_cache(tmp_path / "cache"))
    monkeypatch.setattr(CheckpointWriter, "write", hold_back)
    train(recipe(tmp_path / "two", **more), cache=folder_cache(tmp_path / "cache"))
    expected = _weights(tmp_path / "one")
    changed = _weights(tmp_path / "two")
    shutil.rmtree(max((tmp_path / "two" / "checkpoints").iterdir()))
    found = _weights(tmp_path / "two")
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
    assert not all(torch.equal(changed[name], weight) for name, weight in expected.items())


def test_a_run_with_checkpoints_in_the_background_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    more: dict[str, Any] = {"checkpoint": {"every": 2, "background": True}}
    train(recipe(tmp_path / "whole", steps=5), cache=folder_cache(tmp_path / "cache"))
    train(recipe(tmp_path / "cut", steps=3, **more), cache=folder_cache(tmp_path / "cache"))
    train(recipe(tmp_path / "cut", steps=5, **more), cache=folder_cache(tmp_path / "cache"))
    assert (tmp_path / "cut" / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_an_error_of_the_last_checkpoint_in_the_background_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any, **_options: Any) -> None:
        raise SentinelError("checkpoint of step 2 cannot be written")

    monkeypatch.setattr(persistence, "save_checkpoint", full)
    with pytest.raises(SentinelError, match="cannot be written"):
        train(recipe(tmp_path, checkpoint={"background": True}), cache=folder_cache(tmp_path / "cache"))
