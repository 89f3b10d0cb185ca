"""``rl-sentinel twin``: equal runs, or the first difference."""

from pathlib import Path

import pytest

from command_line import error_line, run_cli
from training import TOML

FAULTS = Path(__file__).parents[2] / "examples" / "faults.py"
MORE = ("rollout.tokens=12", "rollout.unended=reject", "rollout.responses=6", "environment.letters=abcdef")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(TOML.format(out=tmp_path / "run"), encoding="utf-8")
    return path


def test_equal_twins_are_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, err = run_cli(capsys, "twin", str(place), *MORE)
    assert status == 0, err
    assert output.startswith("metrics and weights are bitwise equal over 2 steps; ")


@pytest.mark.skipif(not FAULTS.exists(), reason="examples lie in the source tree, not in the wheel")
def test_fault_is_reported_with_its_step(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, err = run_cli(capsys, "twin", str(place), *MORE, "--fault", f"{FAULTS}:rejected_in_baseline")
    assert status == 1, err
    assert output.startswith("the runs differ at step 1 of 2: ")


def test_unknown_fault_is_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "twin", str(place), "--fault", "none.py:nothing")
    assert line.startswith("path is 'none.py:nothing', expected an existing file: ")
    assert line.endswith("none.py is not a file, fix the path")
