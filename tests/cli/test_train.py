"""``rl-sentinel train``: runs a recipe, and reports a bad one in one line."""

from pathlib import Path

import pytest

from command_line import error_line, run_cli
from rl_sentinel.train.run.journal import read_metrics
from training import TOML


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(TOML.format(out=tmp_path / "run"), encoding="utf-8")
    return path


def test_recipe_runs_and_prints_a_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place.parent / "elsewhere"
    status, output, live = run_cli(capsys, "train", str(place), f"out={out}", "steps=3", "seed=2", "--uncertified")
    assert status == 0, live
    assert [line["step"] for line in read_metrics(out / "metrics.jsonl")] == [1, 2, 3]
    assert output.splitlines()[0].split() == ["metric", "run", "steps", "first", "last", "curve"]
    assert [line.split()[:3] for line in output.splitlines()[1:3]] == [
        ["reward", "elsewhere", "3"],
        ["accuracy", "elsewhere", "3"],
    ]
    assert output.splitlines()[-1].startswith(f"{out}/metrics.jsonl: a line per step; times in timing.jsonl")
    assert [line.split()[1] for line in live.splitlines() if line.startswith("step")] == ["1", "2", "3"]
    assert live.splitlines()[1].split() == ["prompt", "completion", "rewards", "advantage"]


def test_plan_prints_the_memory_and_trains_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, output, _ = run_cli(capsys, "train", str(place), "--plan")
    assert status == 0
    names = [line.split("  ")[0].strip() for line in output.splitlines()]
    assert names[:4] == ["each of 1 process", "weights", "gradients", "optimizer"]
    assert names[-2:] == ["at most at one time", "cpu has"]
    assert not (place.parent / "run").exists()


def test_plan_refuses_a_recipe_that_cannot_fit(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_sentinel.train.run.memory_plan._available", lambda _device: 1000)
    status, _, errors = run_cli(capsys, "train", str(place), "--plan")
    assert (status, errors.count("\n")) == (2, 1)
    assert "train with [policy.lora], or choose a smaller policy" in errors


def test_bad_recipe_is_one_line_and_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        error_line(capsys, "train", str(place), "sede=1") == f"recipe {place}[sede] is unknown, the nearest is 'seed'"
    )
    assert error_line(capsys, "train", str(place), "rollout.responses=1").startswith(
        "rollout.responses is 1, expected 2 or more"
    )
    assert not (place.parent / "run").exists()


def test_same_command_resumes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_cli(capsys, "train", str(place), "--uncertified")
    before = (place.parent / "run" / "metrics.jsonl").read_bytes()
    status, _, live = run_cli(capsys, "train", str(place), "--uncertified")
    assert (status, live) == (0, "resuming after step 2 of 2\n")
    assert (place.parent / "run" / "metrics.jsonl").read_bytes() == before


def test_failed_step_is_dumped_and_repeated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 for the run, 1 for a step that fails again."""
    status, _, output = run_cli(
        capsys, "train", str(place), "loss.clip_high=0.2", "update.rate=1e30", "steps=9", "--uncertified"
    )
    assert status == 2
    assert output.splitlines()[-1].startswith("rl-sentinel: step ")
    (dump,) = (place.parent / "run").glob("stopped-*.pt")
    status, output, _ = run_cli(capsys, "train", str(dump))
    assert status == 1
    then, now = output.splitlines()
    assert then.removeprefix("then: ") == now.removeprefix("now:  ")


def test_dump_takes_no_overrides(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = error_line(capsys, "train", str(place.parent / "stopped-00000001.pt"), "seed=7")
    assert output.startswith("override 'seed=7' is given with a dump, expected no override: ")


@pytest.mark.parametrize("out", ["", "~nouser41/x"])
def test_invalid_path_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(place.parent)
    for command in ("train", "twin"):
        assert error_line(capsys, command, str(place), f"out={out}").startswith(f"out is {out!r}, expected a path: ")
    assert [p.name for p in place.parent.iterdir()] == [place.name]
