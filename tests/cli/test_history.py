"""``history``: version tags of a git folder, oldest first, and what cannot be audited."""

import json
import re
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import run_cli
from git_fixtures import commit_files, run_git

ONLY = ("--boundary", "*compute_grpo_outcome_advantage", "--law", "msk001")


@pytest.fixture
def repository(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history of two versions: without the estimator, and with a leaking one."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    without = MODULE.replace("compute_grpo_outcome_advantage", "compute_something_else")
    folder = checkout(tmp_path / "history", without)
    commit_files(folder, {}, "first")
    run_git(folder, "tag", "v0.9.0")
    commit_files(folder, {"verl/trainer/ppo/core_algos.py": MODULE}, "second")
    run_git(folder, "tag", "v0.10.0")
    run_git(folder, "tag", "nightly")
    return folder


@pytest.mark.slow
def test_tags_of_a_history(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "table.json"
    status, out, _ = run_cli(capsys, "history", f"verl@{repository}", *ONLY, "--json", str(place))
    assert status == 0, out
    assert "v0.9.0     v0.10.0" in out
    assert re.search("absent +found", out)
    made = json.loads(place.read_text(encoding="utf-8"))
    assert [r["target"] for r in made["releases"]] == [f"verl@{repository}#v0.9.0", f"verl@{repository}#v0.10.0"]


@pytest.mark.slow
def test_release_that_cannot_be_audited_costs_its_column_only(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run_cli(capsys, "history", f"verl@{repository}", *ONLY, "--releases", "v0.10.0,v0.8.0")
    assert (status, "found      errored" in out) == (0, True), out
    status, out, _ = run_cli(capsys, "history", f"verl@{repository}", *ONLY, "--releases", "v0.8.0")
    assert (status, "v0.8.0 could not be audited" in " ".join(out.split())) == (2, True), out
