"""The command line as a user meets it: exit status, one-line errors, evidence that replays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout

GRPO = ("--boundary", "*compute_grpo_outcome_advantage", "--law", "MSK001")


def _run(*arguments: str, cache: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"RL_SENTINEL_CACHE": str(cache), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    command = [sys.executable, "-c", "from rl_sentinel.cli.main import run; run()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd)


@pytest.mark.slow
def test_finding_is_reported_replayed_and_seen_fixed(tmp_path: Path, cache: Path) -> None:
    """A leaking mean ends with 1; its evidence is reproduced there and fixed where rows are left out."""
    target = f"verl@{checkout(tmp_path / 'leaking')}"
    found = _run("audit", target, *GRPO, "--json", str(tmp_path / "out.json"), cache=cache)
    assert found.returncode == 1, found.stderr
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    [finding] = report["findings"]
    assert finding["signature"] == "verl:MSK001:verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage:default"
    assert (finding["rows"], finding["tokens"], finding["level"]) == (2, 1, "contested")
    assert report["counts"] == {"holds": 0, "broken": 1, "not_applicable": 0, "errored": 0}
    evidence = tmp_path / "evidence.json"
    evidence.write_text(json.dumps(finding["evidence"]), encoding="utf-8")
    assert _run("replay", str(evidence), target, cache=cache).returncode == 1
    mended = MODULE.replace(
        "rows = torch.tensor([i == name for i in index.tolist()])",
        "rows = torch.tensor([i == name for i in index.tolist()]) & response_mask.any(-1)",
    )
    fixed = _run("replay", str(evidence), f"verl@{checkout(tmp_path / 'mended', mended)}", cache=cache)
    assert (fixed.returncode, fixed.stdout.split(":")[0]) == (0, "fixed")
    constant = MODULE.replace("    return out, out", "    return out * 0, out * 0")
    still = _run("replay", str(evidence), f"verl@{checkout(tmp_path / 'constant', constant)}", cache=cache)
    reason = "output advantage does not change with any column that the boundary reads"
    assert (still.returncode, still.stdout) == (2, f"not-reproducible: {finding['signature']} ({reason})\n")
    refusing = MODULE.replace("    score = token", '    raise ValueError("no")\n    score = token', 1)
    refused = _run("replay", str(evidence), f"verl@{checkout(tmp_path / 'refusing', refusing)}", cache=cache)
    assert (refused.returncode, refused.stdout.split(":")[0]) == (2, "not-reproducible")


@pytest.mark.slow
def test_bad_input_is_one_line(cache: Path) -> None:
    """As a process; the messages of all bad input are those of the other modules."""
    run = _run("explain", "XYZ999", cache=cache)
    assert run.returncode == 2
    assert "law is 'XYZ999', expected a code or name that" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_known_update_is_accepted_afterwards(tmp_path: Path, cache: Path) -> None:
    target, known = f"verl@{checkout(tmp_path / 'tree')}", str(tmp_path / "known.toml")
    assert _run("audit", target, *GRPO, "--known", known, "--known-update", cache=cache).returncode == 1
    assert _run("audit", target, *GRPO, "--known", known, cache=cache).returncode == 0


@pytest.mark.slow
def test_function_of_ones_own(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def advantages(token_level_rewards, response_mask):\n"
        "    score = token_level_rewards.sum(-1)\n"
        "    return (score - score.mean()).unsqueeze(-1) * response_mask\n",
        encoding="utf-8",
    )
    run = _run("audit", "mine:advantages", "--stage", "advantage", "--law", "MSK001", cache=cache, cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    assert "advantages (mine.py:" in run.stdout
    assert "--stage is missing" in _run("audit", "mine:advantages", cache=cache, cwd=tmp_path).stderr
