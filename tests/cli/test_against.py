"""``audit A --against B``: exit status, and options that do not fit."""

import json
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import error_line, run_cli

ONLY = ("--boundary", "*compute_grpo_outcome_advantage", "--law", "msk001")

#: The estimator without its leak: rows without a trained token are no siblings.
SOUND = MODULE.replace("[i == name for i", "[i == name and m for i, m").replace(
    "in index.tolist()])", "in zip(index.tolist(), response_mask.any(-1).tolist())])"
)


@pytest.fixture
def trees(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A leaking and a sound checkout."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    return f"verl@{checkout(tmp_path / 'leaks')}", f"verl@{checkout(tmp_path / 'sound', SOUND)}"


@pytest.mark.slow
def test_finding_that_came_sets_the_status(
    trees: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leaks, sound = trees
    report = tmp_path / "changes.json"
    status, out, _ = run_cli(capsys, "audit", leaks, "--against", sound, *ONLY, "--json", str(report))
    assert (status, out.splitlines().count("came")) == (1, 1), out
    assert [c["other"] for c in json.loads(report.read_text(encoding="utf-8"))["came"]] == ["holds"]
    status, out, _ = run_cli(capsys, "audit", sound, "--against", leaks, *ONLY)
    assert (status, out.splitlines().count("went")) == (0, 1), out


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", "verl==1", "verl==2", "--against", "verl==3") == (
        "--against needs one TARGET, and 2 are given: keep one"
    )
    assert error_line(capsys, "audit", "verl==1", "--against", "trl==1") == (
        "--against is 'trl==1', expected a target of verl, like 'verl==1'"
    )
    assert error_line(capsys, "audit", "verl==1", "--against", "verl==2", "--report", "issue=x") == (
        "--report does not apply to --against, which prints changes only: drop one of the two"
    )
