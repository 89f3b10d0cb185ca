"""What goes wrong in one function costs its own pairs, and nothing that was not tried holds."""

from pathlib import Path

import pytest

from audit_fixtures import MODULE, checkout
from rl_sentinel.audit.findings import Audit
from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.target_spec import parse_target

LINE = '    """Group mean over all rows."""\n'


def _audit(folder: Path, body: str) -> dict[str, set[str]]:
    module = MODULE.replace(LINE, LINE + body)
    target = parse_target(f"verl@{checkout(folder, module)}")
    job, _ = request(target, "audit", laws=("MSK001", "PUR002"), boundaries=("*core_algos*advantage*",), budget=4)
    seen = Audit()
    for event in events(job):
        seen.take(event)
    outcomes: dict[str, set[str]] = {}
    for verdict in seen.verdicts:
        outcomes.setdefault(verdict.boundary.rpartition(".")[2], set()).add(verdict.outcome)
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "    import os; os._exit(3)\n",
        "    return None\n",
        "    torch.zeros(20 * 2**30, dtype=torch.uint8)\n",
        "    return torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)\n",
    ],
    ids=["exits", "returns nothing", "allocates", "answers a constant"],
)
def test_accident_costs_its_own_pairs(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    outcomes = _audit(tmp_path / "tree", body)
    assert outcomes["compute_grpo_outcome_advantage"] == {"errored"}
    assert outcomes["compute_gae_advantage_return"] <= {"holds", "broken"}


@pytest.mark.slow
def test_endless_loop_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    outcomes = _audit(tmp_path / "tree", "    while True:\n        pass\n")
    assert outcomes["compute_grpo_outcome_advantage"] == {"errored"}


@pytest.mark.slow
def test_endless_import_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    target = parse_target(f"verl@{checkout(tmp_path / 'tree', 'while True: pass')}")
    job, _ = request(target, "audit", boundaries=("*grpo*",))
    [verdict] = [e for e in events(job) if e["event"] == "verdict"]
    assert verdict["outcome"] == "errored"
    assert verdict["reason"] == (
        "verl.trainer.ppo.core_algos cannot be imported (TimeoutError: "
        "import of verl.trainer.ppo.core_algos was stopped because no other import started within 20 s of processor "
        "time: keep long or blocking work out of a module's top level)"
    )


@pytest.mark.slow
def test_failing_import_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(tmp_path / "cache"))
    target = parse_target(f"verl@{checkout(tmp_path / 'tree', 'raise RuntimeError(1)')}")
    job, _ = request(target, "audit", boundaries=("*grpo*",))
    [verdict] = [e for e in events(job) if e["event"] == "verdict"]
    assert verdict["outcome"] == "errored"
    assert "RuntimeError" in verdict["reason"]
