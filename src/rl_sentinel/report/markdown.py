"""The Markdown report: a summary for a CI job or a comment on a pull request."""

from collections.abc import Iterator, Sequence

from rl_sentinel.audit.causes import group_by_cause
from rl_sentinel.audit.findings import LEVELS, Finding
from rl_sentinel.report.finding_block import block, level
from rl_sentinel.report.formatting import counted, one_line
from rl_sentinel.report.results import Results, fails


def as_markdown(results: Sequence[Results]) -> str:
    """A table of all targets, then their findings; findings that are known or do not fail the audit are folded."""
    lines = ["## RL-Sentinel", "", f"| target | {' | '.join(LEVELS)} | holds | errored |", "|---" * 6 + "|"]
    lines += [_row(target) for target in results]
    for target in results:
        for findings in group_by_cause(target.findings):
            lines += ["", *_section(findings)]
    return "\n".join(lines) + "\n"


def _row(results: Results) -> str:
    counts = results.audit.counts
    numbers = [sum(f.level == name for f in results.findings) for name in LEVELS]
    cells = [f"`{results.target}`", *map(str, numbers), str(counts["holds"]), str(counts["errored"])]
    return f"| {' | '.join(cells)} |"


def _section(findings: Sequence[Finding]) -> Iterator[str]:
    first = findings[0]
    places = f", {counted(len(findings), 'place')}" if len(findings) > 1 else ""
    title = f"{level(first)} {first.law} at `{first.boundary.rpartition('.')[2]}`{places}"
    about = "" if fails(first) and not first.known else f": {one_line(first.known or 'does not fail', 100)}"
    folded = bool(about)
    yield f"<details><summary>{title}{about}</summary>\n" if folded else f"### {title}\n"
    yield "```text"
    yield from block(findings)
    yield "```"
    if folded:
        yield "</details>"
