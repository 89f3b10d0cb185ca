"""Revisions of real git folders, whole and with a file that is not there."""

from pathlib import Path

import pytest

from git_fixtures import commit_files, run_git
from rl_sentinel.audit.source.git_revision import commit_of, write_out
from rl_sentinel.core.errors import SentinelError


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "history"
    files = {"verl/__init__.py": "VERSION = 1\n", "verl/version": "1", "tool.py": "pass\n", "verl/image.svg": "<svg/>"}
    commit_files(folder, files, "one")
    commit_files(folder, {"verl/__init__.py": "VERSION = 2\n"}, "two")
    return folder


def _blob(folder: Path, name: str) -> Path:
    at = run_git(folder, "rev-parse", f"HEAD:{name}")
    return folder / ".git" / "objects" / at[:2] / at[2:]


def test_the_package_and_all_python(history: Path, tmp_path: Path) -> None:
    write_out(history, commit_of(history, "HEAD~1"), ["verl"], tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")): p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == {"verl/__init__.py": "VERSION = 1\n", "verl/version": "1", "tool.py": "pass\n"}


def test_a_picture_of_the_package_may_be_absent(history: Path, tmp_path: Path) -> None:
    _blob(history, "verl/image.svg").unlink()
    write_out(history, commit_of(history, "HEAD"), ["verl"], tmp_path / "out")
    assert (tmp_path / "out" / "verl" / "__init__.py").read_text() == "VERSION = 2\n"


def test_a_file_of_the_package_must_be_there(history: Path, tmp_path: Path) -> None:
    _blob(history, "verl/version").unlink()
    commit = commit_of(history, "HEAD")
    with pytest.raises(SentinelError) as told:
        write_out(history, commit, ["verl"], tmp_path / "out")
    words = f"{history} lacks verl/version at {commit[:9]}, expected a complete history: clone without --filter"
    assert str(told.value) == words


def test_no_such_revision(history: Path) -> None:
    words = r"has no revision 'nowhere', expected a commit, tag or branch: `git log --all` lists commits$"
    with pytest.raises(SentinelError, match=words):
        commit_of(history, "nowhere")


def test_no_history(tmp_path: Path) -> None:
    with pytest.raises(
        SentinelError,
        match=r"^git rev-parse failed in .*not a git repository.*, expected a folder with a complete git history$",
    ):
        commit_of(tmp_path, "HEAD")
