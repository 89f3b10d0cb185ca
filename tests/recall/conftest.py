"""A history with one bug that a commit fixes."""

from pathlib import Path

import pytest

from audit_fixtures import MODULE
from git_fixtures import commit_files

FILE = "verl/trainer/ppo/core_algos.py"

#: The same estimator with the mean over rows that have a trained token.
FIXED = MODULE.replace(
    "out[rows] = score[rows] - score[rows].mean()",
    "live = rows & response_mask.bool().any(-1)\n        out[live] = score[live] - score[live].mean()",
)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the session, so that light packages are fetched once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def history(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Commits of a framework in ``tmp_path / "git" / "verl"``: begin, comment, parent, fix."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    folder = tmp_path / "git" / "verl"
    empty = {f"{name}/__init__.py": "" for name in ("verl", "verl/trainer", "verl/trainer/ppo")}
    helper = {"verl/helper.py": "def helper():\n    return 1\n"}
    return {
        "begin": commit_files(folder, {**empty, **helper, FILE: MODULE}, "begin"),
        "comment": commit_files(folder, {FILE: f"{MODULE}# The end.\n"}, "add a comment"),
        "parent": commit_files(folder, {"verl/helper.py": "def helper():\n    return 2\n"}, "change the helper"),
        "fix": commit_files(folder, {FILE: FIXED}, "fix the mean"),
    }
