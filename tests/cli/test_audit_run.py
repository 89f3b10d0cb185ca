"""The audit of one target: its report, and the exit status by findings, errors and an expectation."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from audit_fixtures import checkout
from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.findings import Audit
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.cli import audit_run
from rl_sentinel.cli.audit_run import AuditRun, print_total
from rl_sentinel.cli.plan import Planned
from rl_sentinel.cli.progress import Fetched, fetch
from rl_sentinel.core.verdict import Verdict

PATH = "verl.trainer.ppo.core_algos.compute_grpo_outcome_advantage"
OPTIONS: dict[str, Any] = {"laws": ("MSK001",), "claims": (), "algorithm": "", "stage": ""}


def _run(**changed: Any) -> tuple[AuditRun, io.StringIO]:
    out = io.StringIO()
    run = AuditRun(
        console=Console(file=out, width=200, soft_wrap=True),
        python="",
        fresh=True,
        known=None,
        accepted=knowledge.KnownFile(),
        expected=None,
        verbose=False,
        quiet=False,
        must_print=False,
    )
    return replace(run, **changed), out


@pytest.fixture
def fetched(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """A checkout with one estimator."""
    monkeypatch.setenv("RL_SENTINEL_CACHE", str(cache))
    return fetch(parse_target(f"verl@{checkout(tmp_path / 'tree')}"), "", {"laws": ("MSK001",)})


def _audited(monkeypatch: pytest.MonkeyPatch, *outcomes: str) -> None:
    """Replace the worker: it returns one verdict per outcome."""
    audit = Audit(boundaries=1)
    for number, outcome in enumerate(outcomes):
        one: Any = {"law": f"AAA00{number}", "boundary": PATH, "setting": "default", "outcome": outcome}
        audit.verdicts.append(Verdict(**one, tried=1, reason="it raised"))
        audit.counts[outcome.replace("-", "_")] += 1
    monkeypatch.setattr(audit_run, "run_audit", lambda *_arguments, **_options: audit)


@pytest.mark.parametrize(
    ("outcomes", "status", "line"),
    [
        (("holds",), 0, ""),
        (("holds", "errored"), 2, "1 pair errored (see above); exit status 2"),
        (("not-applicable",), 2, "exit status 2"),
    ],
)
def test_status(
    monkeypatch: pytest.MonkeyPatch, fetched: Fetched, outcomes: tuple[str, ...], status: int, line: str
) -> None:
    _audited(monkeypatch, *outcomes)
    run, out = _run()
    results = run.audit(Planned(target=fetched.target, options=OPTIONS, level="contested"), fetched)
    assert (results.status, results.target) == (status, fetched.target.text)
    assert line in out.getvalue()


def test_status_by_an_expectation(monkeypatch: pytest.MonkeyPatch, fetched: Fetched) -> None:
    _audited(monkeypatch, "holds")
    for expected, status, line in (
        (knowledge.KnownFile(), 0, "exactly the expected findings"),
        (knowledge.KnownFile(errored=1), 1, "1 difference from the expected findings"),
    ):
        run, out = _run(expected=expected)
        assert run.audit(Planned(target=fetched.target, options=OPTIONS, level="contested"), fetched).status == status
        assert line in out.getvalue()


def test_total_of_a_project() -> None:
    run, out = _run()
    print_total(run.console, [0, 1, 0])
    assert out.getvalue() == "\n3 functions: 2 sound, 1 with findings; exit status 1\n"
