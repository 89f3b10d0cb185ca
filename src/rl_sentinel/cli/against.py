"""``audit A --against B``: audit both targets on the same cases, and print new, gone and unchanged findings."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl_sentinel.audit.findings import Audit
from rl_sentinel.audit.source.target_spec import TargetSpec, parse_target
from rl_sentinel.audit.verdict_changes import came, renamed, results
from rl_sentinel.cli.output_paths import put
from rl_sentinel.cli.progress import Fetched, require_pairs, run_audit
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import changes as report


def base_of(targets: Sequence[TargetSpec], text: str, options: Sequence[str]) -> TargetSpec:
    """Parse ``--against``; require one TARGET of the same framework, and no option that ``--against`` excludes.

    Raises:
        SentinelError: names the wrong option in one line.
    """
    base = _parsed(targets, text)
    if not targets:
        raise SentinelError("--against needs one TARGET: name the target to compare")
    if len(targets) != 1:
        raise SentinelError(f"--against needs one TARGET, but {len(targets)} targets are given: keep one of them")
    if base.framework.name != targets[0].framework.name:
        kind = "function" if targets[0].function else f"target of {targets[0].framework.name}"
        raise SentinelError(f"--against is {base.text!r}, expected a {kind}, like {targets[0].text!r}")
    if options:
        raise SentinelError(
            f"{options[0]} cannot be combined with --against, which only compares findings: drop one of the two options"
        )
    return base


def _parsed(targets: Sequence[TargetSpec], text: str) -> TargetSpec:
    """Parse ``--against``; if TARGET is a function, the error says how to compare it with an older revision."""
    try:
        return parse_target(text)
    except SentinelError as error:
        if not targets or not targets[0].function:
            raise
        module, _, name = targets[0].function.rpartition(":")
        file = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
        file = "FILE" if Path(file).is_absolute() else file
        raise SentinelError(
            f"--against is {text!r}, expected a function, as in older.py:{name}: to compare with an older revision, "
            f"write that revision to another file, as in git show REVISION:./{file} > older.py"
        ) from error


def compare(  # noqa: PLR0913 - the options of the command
    console: Console, fetched: Sequence[Fetched], python: str, level: str, json_path: Path | None, *, fresh: bool
) -> int:
    """Audit both targets, print and write the changes, and return the exit status.

    The status is 2 if no law could run on one of the targets, 1 if there is a new finding, else 0.
    """
    start = time.monotonic()
    new, old = (_audited(target, python, fresh=fresh) for target in fetched)
    after, before = (target.target.text for target in fetched)
    earlier, later = results(old), results(new)
    functions = all(target.target.function for target in fetched)
    earlier = renamed(earlier, later) if functions else earlier
    comparison = report.Comparison(before, after, earlier, later, level)
    report.show(console, comparison, time.monotonic() - start)
    if json_path:
        put(json_path, json.dumps(report.as_json(comparison), indent=1))
    for name, audit in ((after, new), (before, old)):
        if not _judged_count(audit):
            console.print(f"inconclusive: no law could run on {name}; exit status 2", markup=False)
            return 2
    return 1 if came(comparison.changes) else 0


def _audited(fetched: Fetched, python: str, *, fresh: bool) -> Audit:
    audit = run_audit(fetched.target, fetched.job, python, fresh=fresh)
    require_pairs(fetched.target, fetched.job, audit)
    return audit


def _judged_count(audit: Audit) -> int:
    """The number of pairs whose law could be compared."""
    return audit.counts["holds"] + audit.counts["broken"]
