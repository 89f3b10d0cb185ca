"""Recall on a history with one bug: caught, not caught, and the controls."""

from pathlib import Path

import pytest

from audit_fixtures import MODULE
from git_fixtures import commit_files
from recall.conftest import FIXED
from rl_sentinel.recall.bugs import Bug
from rl_sentinel.recall.histories import Histories
from rl_sentinel.recall.measurement import Controls, Row, measure
from rl_sentinel.recall.narrow_audit import narrow_audit

FILE = "verl/trainer/ppo/core_algos.py"
GRPO = "compute_grpo_outcome_advantage"


def bug(name: str, history: dict[str, str], fix: str = "fix", *, file: str = FILE, function: str = GRPO) -> Bug:
    after = history[fix] if fix else None
    return Bug(
        id=name, framework="verl", file=file, function=function, parent_commit=history["parent"], fix_commit=after
    )


def measured(bugs: list[Bug], folder: Path, *, controls: bool = False) -> list[Row]:
    return list(measure(bugs, bugs, Histories(folder / "git"), jobs=1, controls=controls))


@pytest.mark.slow
def test_outcomes(history: dict[str, str], tmp_path: Path) -> None:
    absent = history | {"parent": "0" * 40}
    rows = measured(
        [
            bug("caught", history),
            bug("moved", history, file="old/package/core_algos.py"),
            bug("not bound", history, file="verl/helper.py", function="helper"),
            bug("not fixed", history, "comment"),
            bug("open", history, ""),
            bug("lost", absent),
            bug("no file", history, file="verl/absent.py"),
        ],
        tmp_path,
    )
    outcomes = {row.bug.id: row.comparison.outcome for row in rows}
    assert outcomes == {
        "caught": "caught",
        "moved": "caught",
        "not bound": "no boundary",
        "not fixed": "still found",
        "open": "no fix",
        "lost": "failed",
        "no file": "failed",
    }
    assert "MSK001" in {v.law for v in rows[0].comparison.found}
    assert {v.boundary.rpartition(".")[2] for v in rows[0].comparison.found} == {GRPO}


@pytest.mark.slow
def test_function_that_the_fix_removes(history: dict[str, str], tmp_path: Path) -> None:
    """The function that called it is judged after the fix."""
    own = "def centered(score):\n    return score - score.mean()\n\n\nADV_ESTIMATOR_REGISTRY["
    broken = MODULE.replace("score[rows] - score[rows].mean()", "centered(score[rows])")
    broken = broken.replace("ADV_ESTIMATOR_REGISTRY[", own, 1)
    folder = tmp_path / "git" / "verl"
    sides = {"parent": commit_files(folder, {FILE: broken}, "split"), "fix": commit_files(folder, {FILE: FIXED}, "fix")}
    (row,) = measured([bug("removed", history | sides, function="centered")], tmp_path)
    assert row.comparison.outcome == "caught"
    assert {v.boundary.rpartition(".")[2] for v in row.comparison.found} == {GRPO}


@pytest.mark.slow
def test_controls(history: dict[str, str], tmp_path: Path) -> None:
    other = bug("other", history, function="compute_gae_advantage_return")
    first, second = measured([bug("caught", history), other], tmp_path, controls=True)
    assert first.controls == Controls(other_function=False, neighbor=False)
    # The commit fixes the other function, and an audit of both sees it: this control can fail.
    assert second.controls == Controls(other_function=True, neighbor=False)


@pytest.mark.slow
def test_a_repeated_audit_is_read_from_the_cache(history: dict[str, str], tmp_path: Path, cache: Path) -> None:
    target, functions = f"verl@{tmp_path}/git/verl#{history['parent']}", (f"core_algos.py:{GRPO}",)
    first = narrow_audit(target, functions, jobs=1)
    stored = sorted((cache / "recall").iterdir())
    times = [p.stat().st_mtime_ns for p in stored]
    assert narrow_audit(target, functions, jobs=1) == first
    assert [p.stat().st_mtime_ns for p in sorted((cache / "recall").iterdir())] == times
    assert {v.boundary.rpartition(".")[2] for v in first.verdicts if v.law != "*"} == {GRPO}
