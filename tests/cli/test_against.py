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
    assert (status, out.splitlines().count("new")) == (1, 1), out
    assert [c["other"] for c in json.loads(report.read_text(encoding="utf-8"))["came"]] == ["holds"]
    status, out, _ = run_cli(capsys, "audit", sound, "--against", leaks, *ONLY)
    assert (status, out.splitlines().count("gone")) == (0, 1), out


def test_options_that_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "audit", "verl==1", "verl==2", "--against", "verl==3") == (
        "--against needs one TARGET, but 2 targets are given: keep one of them"
    )
    assert error_line(capsys, "audit", "verl==1", "--against", "trl==1") == (
        "--against is 'trl==1', expected a target of verl, like 'verl==1'"
    )
    assert error_line(capsys, "audit", "verl==1", "--against", "verl==2", "--report", "issue=x") == (
        "--report cannot be combined with --against, which only compares findings: drop one of the two options"
    )


@pytest.mark.slow
def test_a_function_is_compared_with_one_of_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sound = "def k1(logprobs, ref_logprobs):\n    return logprobs - ref_logprobs\n"
    Path("mine_of_kl.py").write_text(sound, encoding="utf-8")
    Path("older_of_kl.py").write_text(sound.replace(" - ", " + "), encoding="utf-8")
    options = ("--stage", "kl", "--algorithm", "k1", "--law", "REF001")
    status, out, _ = run_cli(capsys, "audit", "mine_of_kl.py:k1", "--against", "older_of_kl.py:k1", *options)
    assert (status, out.splitlines().count("gone")) == (0, 1), out
    assert "in mine_of_kl.py:k1: holds" in out


@pytest.mark.parametrize("base", ["HEAD", "mine.py@HEAD:k1"])
def test_how_to_compare_with_an_older_revision_of_a_function(base: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = error_line(capsys, "audit", "mine.py:k1", "--stage", "kl", "--against", base)
    assert line.startswith(f"--against is {base!r}, expected a function, as in older.py:k1: ")
    assert line.endswith("git show REVISION:./mine.py > older.py")
