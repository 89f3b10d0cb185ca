"""``rl-sentinel train``: a recipe run by its command, and what it says of a bad one."""

from pathlib import Path

import pytest

from rl_sentinel.train.run.journal import lines
from told import ran, told
from training import TOML


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A recipe on disk."""
    found = tmp_path / "r.toml"
    found.write_text(TOML.format(out=tmp_path / "run"), encoding="utf-8")
    return found


def test_recipe_runs_and_tells_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its folder is where the override says."""
    out = place.parent / "elsewhere"
    status, said, live = ran(capsys, "train", str(place), f"out={out}", "steps=3", "seed=2")
    assert status == 0, live
    assert [line["step"] for line in lines(out / "metrics.jsonl")] == [1, 2, 3]
    assert said.splitlines()[0].split() == ["metric", "run", "steps", "first", "last", "curve"]
    assert [line.split()[:3] for line in said.splitlines()[1:3]] == [
        ["reward", "elsewhere", "3"],
        ["accuracy", "elsewhere", "3"],
    ]
    assert said.splitlines()[-1].startswith(f"{out}/metrics.jsonl: a line per step; times in timing.jsonl")
    assert [line.split()[1] for line in live.splitlines()] == ["1", "2", "3"]


def test_bad_recipe_is_one_line_and_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is loaded."""
    assert told(capsys, "train", str(place), "sede=1") == f"recipe {place}[sede] is unknown, did you mean seed"
    assert told(capsys, "train", str(place), "rollout.responses=1").startswith(
        "rollout.responses is 1, expected 2 or more"
    )
    assert not (place.parent / "run").exists()


def test_same_command_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is done has nothing to do, and says where it stands."""
    ran(capsys, "train", str(place))
    before = (place.parent / "run" / "metrics.jsonl").read_bytes()
    status, _, live = ran(capsys, "train", str(place))
    assert (status, live) == (0, "going on after step 2 of 2\n")
    assert (place.parent / "run" / "metrics.jsonl").read_bytes() == before


def test_stopped_run_is_one_line_and_its_evidence_is_done_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 for the run, 1 for a step that happens again."""
    status, _, said = ran(capsys, "train", str(place), "loss.clip_high=0.2", "update.rate=1e30", "steps=9")
    assert status == 2
    assert said.splitlines()[-1].startswith("rl-sentinel: step ")
    (evidence,) = (place.parent / "run").glob("stopped-*.pt")
    status, said, _ = ran(capsys, "train", str(evidence))
    assert status == 1
    then, now = said.splitlines()
    assert then.removeprefix("then: ") == now.removeprefix("now:  ")


def test_evidence_takes_no_overrides(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would change nothing."""
    said = told(capsys, "train", str(place.parent / "stopped-00000001.pt"), "seed=7")
    assert said.startswith("override 'seed=7' changes nothing of evidence, expected none: ")


@pytest.mark.parametrize("out", ["", "~nouser41/x"])
def test_folder_that_is_no_path_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """The current folder is not meant by nothing."""
    monkeypatch.chdir(place.parent)
    for command in ("train", "twin"):
        assert told(capsys, command, str(place), f"out={out}").startswith(f"out is {out!r}, expected a path: ")
    assert [p.name for p in place.parent.iterdir()] == [place.name]
