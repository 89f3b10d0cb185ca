"""Repositories in a folder, and earlier changes of a file."""

from pathlib import Path

import pytest

from git_fixtures import commit_files, run_git
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.recall.histories import Histories, previous_harmless_change


def test_bare_and_plain_repositories(tmp_path: Path) -> None:
    plain = tmp_path / "all" / "slime"
    one = commit_files(plain, {"slime/a.py": "1\n"}, "one")
    other = commit_files(tmp_path / "away", {"verl/a.py": "2\n"}, "other")
    bare = tmp_path / "all" / "owner+verl" / "repo"
    run_git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "away"), str(bare))
    histories = Histories(tmp_path / "all")
    assert [histories.of(c) for c in (one, other, "0" * 40)] == [plain, bare, None]
    assert Histories(plain).of(one) == plain
    with pytest.raises(SentinelError, match=r"^--git is .*, expected a folder with a git repository per framework$"):
        Histories(tmp_path / "away" / "verl")


def test_a_neighbor_fixes_nothing_and_touches_the_file(tmp_path: Path) -> None:
    commit_files(tmp_path, {"a.py": "1\n"}, "begin")
    wanted = commit_files(tmp_path, {"a.py": "2\n"}, "add a flag")
    commit_files(tmp_path, {"a.py": "3\n"}, "Fix the flag")
    commit_files(tmp_path, {"b.py": "1\n"}, "add a file")
    assert previous_harmless_change(tmp_path, "HEAD", "a.py") == wanted
    assert previous_harmless_change(tmp_path, "HEAD", "b.py") != wanted
    assert not previous_harmless_change(tmp_path, "HEAD", "c.py")
