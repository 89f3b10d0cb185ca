"""Audit one target of a command: run it, print its report, and decide its exit status."""

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.expectation import differences
from rl_sentinel.audit.findings import LEVELS, Audit, Finding, findings
from rl_sentinel.audit.function_results import complete
from rl_sentinel.cli.plan import Planned
from rl_sentinel.cli.progress import Fetched, require_pairs, run_audit
from rl_sentinel.report import text
from rl_sentinel.report.formatting import counted
from rl_sentinel.report.results import Results, fails


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    """The state that all targets of a command share.

    Attributes:
        console: where reports are printed.
        python: the interpreter of the audited environment.
        fresh: True to ignore stored verdicts.
        known: the path of the user's known findings.
        accepted: the entries of that file.
        expected: the exact findings that must appear; None without ``--expect``.
        verbose: True to print known findings in full.
        quiet: True to print only findings, and the pairs that could not be checked.
        must_print: True to print a report even if a function could not be called; otherwise that is an error.
    """

    console: Console
    python: str
    fresh: bool
    known: Path | None
    accepted: knowledge.KnownFile
    expected: knowledge.KnownFile | None
    verbose: bool
    quiet: bool
    must_print: bool

    def audit(self, planned: Planned, fetched: Fetched) -> Results:
        """Audit a target and print its report.

        Raises:
            SentinelError: if it cannot be audited.
        """
        start = time.monotonic()
        target, job, source = fetched
        audited = run_audit(target, job, self.python, fresh=self.fresh)
        require_pairs(target, job, audited, prints=self.must_print)
        complete(audited, planned.algorithm, of_user=target.framework.name == "own")
        annotated = [
            *knowledge.entries(self.accepted, accepted=True, source=str(self.known)),
            *knowledge.shipped(target.framework.name),
        ]
        found = findings(audited, annotated, source.known_version)
        visible = [f for f in found if LEVELS.index(f.level) <= LEVELS.index(planned.level)]
        seconds = time.monotonic() - start
        text.show(
            self.console,
            target.text,
            audited,
            visible,
            seconds,
            len(found) - len(visible),
            verbose=self.verbose,
            quiet=self.quiet,
            unclaimed=planned.unclaimed,
        )
        if not (job.laws or job.ignore or job.boundaries):
            self._print_stale(annotated, found, audited, fetched)
        status = self._status(audited, visible)
        return Results(
            target=target.text, audit=audited, findings=visible, seconds=seconds, seed=job.seed, status=status
        )

    def _print_stale(
        self, annotated: list[knowledge.Known], found: list[Finding], audited: Audit, fetched: Fetched
    ) -> None:
        """Name the entries for this release whose finding did not appear, although their module was called."""
        called = [v.boundary for v in audited.verdicts if v.outcome != "errored"]
        signatures = [signature for f in found for signature in f.signatures]
        name, version = fetched.target.framework.name, fetched.source.known_version
        for old in knowledge.stale(annotated, signatures, called, name, version):
            self.console.print(f"stale: {old} is listed for this release and did not appear", markup=False)

    def _status(self, audit: Audit, visible: list[Finding]) -> int:
        """The exit status; with ``--expect``, print each difference from the expected findings."""
        if self.expected is None:
            return self._status_without_expectation(audit, visible)
        problems = differences(self.expected, audit, visible)
        for line in problems:
            self.console.print(line, markup=False)
        count = f"{counted(len(problems), 'difference')} from the expected findings"
        self.console.print(count if problems else "exactly the expected findings")
        return 1 if problems else 0

    def _status_without_expectation(self, audit: Audit, visible: list[Finding]) -> int:
        if any(fails(f) for f in visible):
            return 1
        judged, errored = audit.counts["holds"] + audit.counts["broken"], audit.counts["errored"]
        if judged and not errored:
            return 0
        reason = f"{counted(errored, 'pair')} errored (see above); " if errored else ""
        self.console.print(f"{reason}exit status 2", markup=False)
        return 2


def print_total(console: Console, statuses: list[int]) -> None:
    """Print one line with the number of sound functions, functions with findings and functions not judged."""
    labels = {0: "sound", 1: "with findings", 2: "not judged"}
    parts = [f"{statuses.count(status)} {label}" for status, label in labels.items() if status in statuses]
    console.print(f"\n{counted(len(statuses), 'function')}: {', '.join(parts)}; exit status {max(statuses)}")
