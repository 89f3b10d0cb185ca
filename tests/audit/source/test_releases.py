"""Releases of the package index and of git folders, oldest first, and targets that have none."""

import subprocess
from pathlib import Path

import pytest

from git_fixtures import commit_files, run_git
from rl_sentinel.audit.source import releases as module
from rl_sentinel.audit.source.releases import releases
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.core.errors import SentinelError


def _pip(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    done = subprocess.CompletedProcess[str]((), 0, output, "")
    monkeypatch.setattr(module, "pip", lambda *_: done)


def test_releases_of_the_index_in_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, "verl (0.10.0)\nAvailable versions: 0.10.0, 0.9.1, 0.3.0.post1, 0.3.0\n")
    assert releases(parse_target("verl")) == ["0.3.0", "0.3.0.post1", "0.9.1", "0.10.0"]


def test_index_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(monkeypatch, "")
    with pytest.raises(SentinelError, match=r"cannot be listed by pip \(no answer\): pass them as --releases A,B,C"):
        releases(parse_target("verl"))


def test_tags_that_are_versions(tmp_path: Path) -> None:
    commit_files(tmp_path, {"a": ""}, "first")
    with pytest.raises(SentinelError, match="has no version tag"):
        releases(parse_target(f"verl@{tmp_path}"))
    for tag in ("v0.10.0", "v0.9.0", "nightly"):
        run_git(tmp_path, "tag", tag)
    assert releases(parse_target(f"verl@{tmp_path}")) == ["v0.9.0", "v0.10.0"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("verl==0.9.1", "expected verl, or verl@FOLDER with version tags"),
        ("verl@/nonesuch#v1", "expected verl, or verl@FOLDER with version tags"),
        ("verl@/nonesuch", "expected a folder with a git history"),
    ],
)
def test_target_without_releases(target: str, message: str) -> None:
    with pytest.raises(SentinelError, match=message):
        releases(parse_target(target))
