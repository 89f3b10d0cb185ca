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


def test_names_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As they are on the disk."""
    status, said, _ = ran(capsys, "curves", str(_run(tmp_path / "[red]x")))
    assert status == 0
    assert said.splitlines()[1].split()[1] == "[red]x"


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_numbers_that_are_not_finite_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    """A run may have them; the curve is blank there."""
    place = _run(tmp_path / "one")
    with (place / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 2, "reward": {value}}}\n')
    status, said, _ = ran(capsys, "curves", str(place))
    assert status == 0
    mean = {"NaN": "nan", "Infinity": "inf"}[value]
    assert said.splitlines()[1].split()[2:5] == ["2", mean, mean]


@pytest.mark.parametrize(
    "text", ["", "5\n", "{}\n", "[1]\n", f'{{"step": 1, "reward": {10**400}}}\n', '{"step": 1, "reward": null}\n']
)
def test_metrics_that_are_none_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Rather than an empty table."""
    (tmp_path / "metrics.jsonl").write_text(text)
    assert told(capsys, "curves", str(tmp_path)).startswith(f"{tmp_path}/metrics.jsonl ")
