"""Fetching and auditing a target: every event is taken, and nothing to ask is an error."""

import sys
from pathlib import Path

import pytest

from audit_fixtures import checkout
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli import progress
from rl_sentinel.cli.progress import fetch, require_pairs, run_audit
from rl_sentinel.core.errors import SentinelError


@pytest.mark.slow
def test_audit_of_a_selection(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    target = parse_target(f"verl@{checkout(tmp_path)}")
    options = {"boundaries": ("*compute_grpo_outcome_advantage",), "laws": ("MSK001",), "budget": 2}
    _, job, source = fetch(target, sys.executable, options)
    assert source.root == tmp_path
    assert [v.law for v in run_audit(target, job, sys.executable).verdicts if v.law != "*"] == ["MSK001"]
    _, job, _ = fetch(target, sys.executable, {"boundaries": ("nonesuch",)})
    with pytest.raises(SentinelError, match=r"no law and boundary of .* match --boundary"):
        require_pairs(target, job, run_audit(target, job, sys.executable))


@pytest.mark.slow
def test_a_log_without_a_terminal_gets_a_line_at_intervals(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    target = parse_target(f"verl@{checkout(tmp_path)}")
    options = {"boundaries": ("*compute_grpo_outcome_advantage",), "laws": ("MSK001",), "budget": 2}
    _, job, _ = fetch(target, sys.executable, options)
    capsys.readouterr()
    monkeypatch.setattr(progress, "_SECONDS", 1e-6)
    run_audit(target, job, sys.executable, fresh=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith(f"rl-sentinel: {target.text}: ") for line in lines)
    assert lines[-1].endswith(" s")
    monkeypatch.setattr(progress, "_SECONDS", 3600)
    run_audit(target, job, sys.executable, fresh=True)
    assert not capsys.readouterr().err
