"""``replay``: contained like an audit, one worker for a file, one line for each record."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit_fixtures import MODULE, checkout
from command_line import error_line, run_cli
from report_fixtures import evidence
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.sandbox.worker_process import events
from rl_sentinel.cli import replay as command

LINE = '    """Group mean over all rows."""\n'
GRPO = "verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
PLACE = "verl/trainer/ppo/core_algos.py:7"
GAE = GRPO.replace("grpo_outcome_advantage", "gae_advantage_return")
NAME, OTHER, NOWHERE = (f"verl:MSK001:{path}:default" for path in (GRPO, GAE, "verl.nowhere"))


@pytest.fixture
def records(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report with the same finding at two boundaries."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    file = tmp_path / "report.json"
    found = [{"evidence": evidence(boundary=path)} for path in (GRPO, GAE, "verl.nowhere")]
    file.write_text(json.dumps({"findings": found}), encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("", f"reproduced: {NAME}"),
        ("    import os; os._exit(3)\n", f"not-reproducible: {NAME} (the call ended with exit status 3)"),
        (
            "    torch.zeros(20 * 2**30, dtype=torch.uint8)\n",
            f"not-reproducible: {NAME} (RuntimeError: ",
        ),
        (
            "    return torch.zeros_like(token_level_rewards), torch.zeros_like(token_level_rewards)\n",
            f"not-reproducible: {NAME} (output advantage does not change with any column that the boundary reads)",
        ),
        (
            "    while True: pass\n",
            f"not-reproducible: {NAME} (the call took more than 15 s of processor time, last in {PLACE})",
        ),
    ],
    ids=["leaks", "exits", "allocates", "constant", "loops"],
)
def test_accident_costs_its_own_record(
    records: Path, tmp_path: Path, body: str, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = checkout(tmp_path / "tree", MODULE.replace(LINE, LINE + body))
    ended, said, _ = run_cli(capsys, "replay", str(records), f"verl@{tree}")
    lines = said.splitlines()
    assert ended == 2
    assert lines[0].startswith(first)
    assert lines[1:] == [
        f"fixed: {OTHER}",
        f"not-reproducible: {NOWHERE} (verl.nowhere: the target has no such boundary)",
    ]


@pytest.mark.slow
def test_one_worker_serves_a_file(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Request] = []

    def counted(job: Request, python: str) -> Iterator[dict[str, Any]]:
        started.append(job)
        return events(job, python)

    monkeypatch.setattr(command, "events", counted)
    run_cli(capsys, "replay", str(records), f"verl@{checkout(tmp_path / 'tree')}")
    assert [len(job.records) for job in started] == [3]


def test_file_that_is_no_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.json"
    file.write_text('{"findings": []}', encoding="utf-8")
    assert error_line(capsys, "replay", str(file)) == (
        f"evidence {file} has no finding, expected a report with findings to replay"
    )
    file.write_text(json.dumps(evidence(target={"spec": "nonesuch==1"})), encoding="utf-8")
    assert error_line(capsys, "replay", str(file)).endswith("'nonesuch' is not a known framework")


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("setting", "no-std", "[setting] is 'no-std', expected 'default', by the case of the finding"),
        ("signature", "x", f"[signature] is 'x', expected '{NAME}', by the law, boundary and setting of the finding"),
    ],
)
def test_record_that_was_edited_is_not_replayed(
    tmp_path: Path, key: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.json"
    file.write_text(json.dumps(evidence(boundary=GRPO) | {key: value}), encoding="utf-8")
    assert error_line(capsys, "replay", str(file)) == f"evidence {file}{words}: the file was edited, so audit again"


@pytest.mark.slow
def test_stage_that_is_another_is_told(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    file = tmp_path / "e.json"
    file.write_text(json.dumps(evidence(boundary=GRPO, stage="kl")), encoding="utf-8")
    assert error_line(capsys, "replay", str(file), f"verl@{checkout(tmp_path / 'tree')}") == (
        f"evidence {NAME}[stage] is 'kl', expected 'advantage' as in the target: "
        "the file was edited, or the target is another one, so audit again"
    )


@pytest.mark.slow
def test_claims_of_ones_own_function_go_with_its_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "def of_evidence(rewards, mask): return (rewards - rewards.mean())[:, None] * mask\n"
    (tmp_path / "mine_of_evidence.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    own = ("mine_of_evidence:of_evidence", "--stage", "advantage", "--claim", "scope=group", "--law", "GRP001")
    status, said, _ = run_cli(capsys, "audit", *own, "--json", "out.json")
    assert (status, "fault GRP001" in said) == (1, True), said
    name = "own:GRP001:mine_of_evidence.of_evidence:default"
    assert run_cli(capsys, "replay", "out.json")[:2] == (1, f"reproduced: {name}\n")


@pytest.mark.slow
def test_code_that_is_not_the_one_of_the_evidence_is_mentioned(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    spec, file = f"verl@{checkout(tmp_path / 'tree')}", tmp_path / "e.json"
    target = {"spec": spec, "framework": "verl", "digest": "0123456789abcdef"}
    file.write_text(json.dumps(evidence(boundary=GRPO, target=target)), encoding="utf-8")
    status, said, _ = run_cli(capsys, "replay", str(file))
    assert status == 1
    assert said.startswith(f"reproduced: {NAME} (its code differs from the audited code: sha256 ")
    assert said.endswith(", expected 0123456789ab)\n")
    assert run_cli(capsys, "replay", str(file), f"verl@{tmp_path / 'tree'}/")[1] == f"reproduced: {NAME}\n"


def test_finding_of_another_framework_is_told(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "replay", str(records), "skyrl==0.3.0") == (
        f"{records} has a finding of verl, but the target skyrl==0.3.0 is skyrl: replay it on verl"
    )
