"""``rl-sentinel curves``."""

import importlib.util
import json
from pathlib import Path

import pytest

from told import ran, told


def _run(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": 0.5}) + "\n")
    return place


def test_runs_are_shown_beside_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By their folders' names."""
    status, said, _ = ran(capsys, "curves", str(_run(tmp_path / "one")), str(_run(tmp_path / "two")))
    assert status == 0
    assert [line.split()[1] for line in said.splitlines()[1:]] == ["one", "two"]


def test_what_is_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the file."""
    assert told(capsys, "curves", str(tmp_path)).startswith(f"{tmp_path}/metrics.jsonl cannot be read (")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is there")
def test_picture_without_matplotlib_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the way out."""
    status, _, said = ran(capsys, "curves", str(_run(tmp_path / "one")), "--png", str(tmp_path / "a.png"))
    assert status == 2
    assert said == "rl-sentinel: --png needs matplotlib, which is not installed: pip install 'rl-sentinel[train]'\n"
