"""Resume: what a killed run leaves behind a checkpoint is taken back."""

import json
from pathlib import Path
from typing import Any

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
