"""``recall``: options, and what is written."""

import json
import sys
from pathlib import Path

import pytest

from audit_fixtures import MODULE
from command_line import error_line, run_cli
from git_fixtures import commit_files

FOUND = {
    "law": "MSK001",
    "boundary": "a.f",
    "setting": "default",
    "outcome": "broken",
    "reason": "",
    "level": "fault",
    "sentence": "it moves",
    "broken": ["x"],
    "held": [],
}
ROW = {"id": "one", "framework": "verl", "file": "verl/helper.py", "function": "helper"}


@pytest.fixture
def corpus(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    files = {f"{name}/__init__.py": "" for name in ("verl", "verl/trainer", "verl/trainer/ppo")}
    files |= {"verl/trainer/ppo/core_algos.py": MODULE, "verl/helper.py": "def helper(): ...\n"}
    parent = commit_files(tmp_path / "git" / "verl", files, "one")
    fix = commit_files(tmp_path / "git" / "verl", {"verl/helper.py": "def helper(): return 1\n"}, "two")
    path = tmp_path / "bugs.jsonl"
    path.write_text(json.dumps({**ROW, "parent_commit": parent, "fix_commit": fix}) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_page_and_json(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "recall.md", tmp_path / "recall.json"
    outputs = ("--page", str(page), "--json", str(data), "--no-controls")
    status, said, _ = run_cli(capsys, "recall", str(corpus), "--git", str(tmp_path / "git"), *outputs)
    assert status == 0
    assert said.splitlines() == [
        "no boundary: one",
        "caught 0 of 1; controls that changed: other function not run; neighbor not run",
    ]
    assert page.read_text(encoding="utf-8").startswith("# Recall on known bugs")
    assert json.loads(data.read_text(encoding="utf-8"))["rows"][0]["outcome"] == "no boundary"


@pytest.mark.slow
def test_resumed(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug that the file has is not audited again, and stands on the page."""
    page, data = tmp_path / "recall.md", tmp_path / "recall.json"
    options = ("--git", str(tmp_path / "git"), "--json", str(data), "--page", str(page), "--no-controls", "--resume")
    assert run_cli(capsys, "recall", str(corpus), *options)[0] == 0
    measured = json.loads(data.read_text(encoding="utf-8"))
    measured["rows"][0] |= {"outcome": "caught", "found": [FOUND]}
    data.write_text(json.dumps(measured), encoding="utf-8")
    status, said, _ = run_cli(capsys, "recall", str(corpus), *options)
    assert (status, said.splitlines()[0].partition(";")[0]) == (0, "caught 1 of 1")
    assert "MSK001 (fault) at `a.f`" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["[]", "{", '{"rows": [{"id": "one"}]}', '{"rows": 3}'])
def test_another_file_is_not_resumed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    data = tmp_path / "recall.json"
    data.write_text(text, encoding="utf-8")
    line = error_line(capsys, "recall", str(corpus), "--json", str(data), "--resume")
    assert line.startswith(f"--json {data} cannot be resumed (")
    assert error_line(capsys, "recall", str(corpus), "--resume").startswith("--resume needs --json")


def test_nothing_could_be_audited(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said, _ = run_cli(capsys, "recall", str(corpus))
    assert status == 2
    assert said.startswith(
        "failed: one (the bug's row lacks releases.last or releases.fixed_in, expected both: add them, or pass --git)"
    )


def test_options(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "recall", str(corpus), "--rows", "two") == "--rows is 'two', expected one of one"
    assert error_line(capsys, "recall", str(corpus), "--cpu", "hard").startswith("the corpus has no bug for these")


def test_interpreter(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git = ("--git", str(tmp_path / "git"))
    refusal = "--python is '/bin/true', expected a Python interpreter: it did not run Python code"
    assert error_line(capsys, "recall", str(corpus), *git, "--python", "/bin/true") == refusal


@pytest.mark.slow
def test_code_is_imported_in_the_interpreter(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, other = tmp_path / "runs.txt", tmp_path / "python"
    other.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {sys.executable} "$@"\n', encoding="utf-8")
    other.chmod(0o755)
    outputs = ("--git", str(tmp_path / "git"), "--no-controls", "--python", str(other))
    status, said, _ = run_cli(capsys, "recall", str(corpus), *outputs)
    assert (status, said.splitlines()[0]) == (0, "no boundary: one")
    workers = [
        line for line in log.read_text(encoding="utf-8").splitlines() if "rl_sentinel.audit.engine.worker" in line
    ]
    assert len(workers) == len(("before the fix", "after the fix"))
