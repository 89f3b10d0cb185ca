"""Fetch and audit a target, and show the progress on standard error."""

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rl_sentinel.audit.findings import Audit
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.sandbox.worker_process import request
from rl_sentinel.audit.source.fetch import Source
from rl_sentinel.audit.source.target_spec import TargetSpec
from rl_sentinel.audit.verdict_store import stored_or_run
from rl_sentinel.core.errors import SentinelError

#: Seconds between two lines of progress.
_SECONDS = 30


class Fetched(NamedTuple):
    """A target with its code on disk, and the audit request."""

    target: TargetSpec
    job: Request
    source: Source


def fetch(target: TargetSpec, python: str, options: Mapping[str, Any]) -> Fetched:
    """Fetch the code of a target, and make the audit request with these ``options``."""
    with Console(stderr=True).status(f"fetching {target.text}"):
        return Fetched(target, *request(target, "audit", python=python, **options))


def run_audit(target: TargetSpec, job: Request, python: str, *, fresh: bool = False) -> Audit:
    """Run an audit with a progress bar, or take stored verdicts unless ``fresh``.

    Raises:
        SentinelError: if the worker fails.
    """
    shown = sys.stderr.isatty()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    audit = Audit()
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True) as progress:
        bar = progress.add_task(f"loading {target.text}", total=None)
        line = _Line(target.text)
        with closing(stored_or_run(job, python, fresh=fresh)) as stream:
            for event in stream:
                audit.take(event)
                if event["event"] == "plan":
                    progress.update(bar, total=event["pairs"], description=target.text)
                    line.pairs = event["pairs"]
                elif event["event"] == "verdict":
                    progress.advance(bar)
                    if not shown:
                        line.advance()
    return audit


@dataclass
class _Line:
    """Progress where no bar can be drawn, as in the log of a CI job: one line every ``_SECONDS`` seconds."""

    target: str
    pairs: int = 0
    done: int = 0
    start: float = field(default_factory=time.monotonic)
    printed: int = 0

    def advance(self) -> None:
        """Count a pair, and print a line if ``_SECONDS`` have passed since the last line."""
        self.done += 1
        seconds = time.monotonic() - self.start
        if seconds >= (self.printed + 1) * _SECONDS:
            self.printed = int(seconds // _SECONDS)
            text = f"rl-sentinel: {self.target}: {self.done} of {self.pairs} pairs after {seconds:.0f} s"
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - the command line's own output


def _sole_failure(audit: Audit) -> str:
    """The reason why every law errored, if it is the same for all."""
    reasons = {v.reason for v in audit.verdicts if v.outcome == "errored"}
    return next(iter(reasons)) if len(reasons) == 1 and audit.counts["errored"] == len(audit.verdicts) else ""


def require_pairs(target: TargetSpec, job: Request, audit: Audit, *, prints: bool = True) -> None:
    """Require that at least one pair of law and boundary is selected, and that a user's function could be called.

    Args:
        target: the target.
        job: the request.
        audit: the results.
        prints: True if a report is printed or written even if a function could not be called.

    Raises:
        SentinelError: if the target cannot be audited, or the options leave no pair.
    """
    if target.form == "function" and audit.verdicts and all(v.law == "*" for v in audit.verdicts):
        raise SentinelError(f"target {target.text} cannot be audited: {audit.verdicts[0].reason}")
    if target.form == "function" and not prints and (reason := _sole_failure(audit)):
        raise SentinelError(f"target {target.text} cannot be checked: {reason}")
    if not audit.verdicts:
        options = {"--boundary": job.boundaries, "--law": job.laws, "--ignore": job.ignore, "--stage": job.stage}
        used = " and ".join(name for name, chosen in options.items() if chosen) or "the stage"
        hint = "`rl-sentinel boundaries TARGET` and `rl-sentinel laws` list the names"
        raise SentinelError(f"no law and boundary of {target.text} match {used}: {hint}")
