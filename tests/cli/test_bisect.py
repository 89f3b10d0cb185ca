"""``replay --bisect`` as ``git bisect run`` calls it, in a real repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from command_line import run_cli
from report_fixtures import evidence

GRPO = "verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
SOUND = MODULE.replace("for i in index.tolist()])", "for i in index.tolist()]) & response_mask.any(-1)")
HALF_WAY = "raise RuntimeError('half way')\n"
CLI = "from rl_sentinel.cli.main import run; run()"


def _git(tree: Path, *arguments: str) -> str:
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    env = {"PATH": os.environ["PATH"], "HOME": str(tree), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *named, *arguments], cwd=tree, env=env | _KEPT, capture_output=True, text=True, check=True
    ).stdout


_KEPT = {k: v for k, v in os.environ.items() if k.startswith(("PYTHON", "PIP_", "OMP_", "RL_SENTINEL"))}


@pytest.fixture
def file(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    place = tmp_path / "evidence.json"
    place.write_text(json.dumps(evidence(boundary=GRPO)), encoding="utf-8")
    return place


@pytest.mark.slow
def test_revision_that_cannot_be_imported_is_skipped(
    file: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_KEPT, "RL_SENTINEL_CACHE", str(cache))
    tree = checkout(tmp_path / "tree", SOUND)
    module = tree / "verl" / "trainer" / "ppo" / "core_algos.py"
    _git(tree, "init", "-q")
    commits = list[str]()
    for text in (SOUND, SOUND + "# 1\n", HALF_WAY + SOUND, SOUND + "# 2\n", MODULE):
        module.write_text(text, encoding="utf-8")
        _git(tree, "add", "-A")
        _git(tree, "commit", "-q", "-m", f"{len(commits)}")
        commits.append(_git(tree, "rev-parse", "HEAD").strip())
    _git(tree, "bisect", "start", commits[4], commits[0])
    said = _git(tree, "bisect", "run", sys.executable, "-c", CLI, "replay", "--bisect", str(file), "verl@.")
    assert f"{commits[4]} is the first bad commit" in said
    assert f"# skip: [{commits[2]}]" in _git(tree, "bisect", "log")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "status"), [(MODULE, 1), (SOUND, 0), (HALF_WAY, 125)], ids=["leaks", "sound", "broken"]
)
def test_status_is_one_that_git_understands(
    file: Path, tmp_path: Path, module: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = checkout(tmp_path / "tree", module)
    assert run_cli(capsys, "replay", "--bisect", str(file), f"verl@{tree}")[0] == status


def test_folder_without_the_package_is_skipped_and_bad_evidence_stops(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(capsys, "replay", "--bisect", str(file), f"verl@{tmp_path}")[0] == 125
    file.write_text("{", encoding="utf-8")
    assert run_cli(capsys, "replay", "--bisect", str(file), f"verl@{tmp_path}")[0] == 128
    assert run_cli(capsys, "replay", str(file), f"verl@{tmp_path}")[0] == 2
