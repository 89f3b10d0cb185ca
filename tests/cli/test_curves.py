"""``rl-sentinel curves``."""

import importlib.util
import json
from pathlib import Path

import pytest

from command_line import error_line, run_cli


def _run(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": 0.5}) + "\n")
    return place


def test_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, _ = run_cli(capsys, "curves", str(_run(tmp_path / "one")), str(_run(tmp_path / "two")))
    assert status == 0
    assert [line.split()[1] for line in output.splitlines()[1:]] == ["one", "two"]


def test_a_run_that_is_given_twice_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = _run(tmp_path / "one")
    _, once, _ = run_cli(capsys, "curves", str(run))
    status, twice, _ = run_cli(capsys, "curves", str(run), str(tmp_path / "one" / ".." / "one"))
    assert (status, twice) == (0, once)


def test_folder_without_a_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "curves", str(tmp_path)).startswith(
        f"{tmp_path}/metrics.jsonl does not exist, expected the metrics"
    )


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_missing_matplotlib_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, output = run_cli(capsys, "curves", str(_run(tmp_path / "one")), "--png", str(tmp_path / "a.png"))
    assert status == 2
    wanted = "--png needs matplotlib, which cannot be imported (No module named 'matplotlib'): pip install"
    assert output.startswith(f"rl-sentinel: {wanted} 'rl-sentinel[train]'")


def test_names_are_not_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, _ = run_cli(capsys, "curves", str(_run(tmp_path / "[red]x")))
    assert status == 0
    assert output.splitlines()[1].split()[1] == "[red]x"


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_numbers_that_are_not_finite_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str) -> None:
    place = _run(tmp_path / "one")
    with (place / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 2, "reward": {value}}}\n')
    status, output, _ = run_cli(capsys, "curves", str(place))
    assert status == 0
    mean = {"NaN": "nan", "Infinity": "inf"}[value]
    assert output.splitlines()[1].split()[2:5] == ["2", mean, mean]


@pytest.mark.parametrize(
    "text", ["", "5\n", "{}\n", "[1]\n", f'{{"step": 1, "reward": {10**400}}}\n', '{"step": 1, "reward": null}\n']
)
def test_invalid_metrics_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    assert error_line(capsys, "curves", str(tmp_path)).startswith(f"{tmp_path}/metrics.jsonl ")
