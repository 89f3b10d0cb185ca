"""Results of a recall measurement as a Markdown page, and as JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rl_sentinel.recall.measurement import Row

#: Most characters of a reason in a table cell.
_CELL = 240

_HEAD = """# Recall on known bugs

Written by `rl-sentinel recall`. A bug is *caught* if the audit of the code before its fix has a finding at the function
of the bug, or at a boundary whose run enters this function, and the same law at the same boundary is judged *holds*
after the fix. Not applicable, errored or unbound after the fix does not count. Where the law is still broken after the
fix, the bug counts as caught only if an output that broke before it is compared and holds after it; the row says so.
"""


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """All results as one JSON object."""
    return {"summary": summary(rows), "rows": [_row_as_json(row) for row in rows]}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts of bugs, of bugs by outcome, of caught bugs by worst level, and of controls that show a change."""
    levels = Counter(_level(row) for row in rows if row.comparison.outcome == "caught")
    controls: dict[str, dict[str, int]] = {}
    for name in ("other_function", "neighbor"):
        values = [getattr(row.controls, name) for row in rows]
        controls[name] = {"run": sum(v is not None for v in values), "changed": sum(v is True for v in values)}
    outcomes = dict(Counter(row.comparison.outcome for row in rows))
    return {"rows": len(rows), "outcomes": outcomes, "caught_by_level": dict(levels), "controls": controls}


def as_markdown(rows: Sequence[Row]) -> str:
    """All results as a Markdown page."""
    lines = [_HEAD, "| framework | CPU | bugs | caught | of these fault | contested |", "|---|---|---|---|---|---|"]
    for framework, cpu in sorted({(r.bug.framework, r.bug.cpu) for r in rows}):
        group = [r for r in rows if (r.bug.framework, r.bug.cpu) == (framework, cpu)]
        levels = Counter(_level(r) for r in group if r.comparison.outcome == "caught")
        caught = sum(levels.values())
        lines.append(f"| {framework} | {cpu} | {len(group)} | {caught} | {levels['fault']} | {levels['contested']} |")
    counts = summary(rows)["controls"]
    lines += ["", "Controls, which should show no change of verdict:", ""]
    lines += [f"- {_control(name)}: {share(c)}" for name, c in counts.items()]
    lines += ["", "| bug | function | outcome | law at boundary, or reason |", "|---|---|---|---|"]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def share(counts: Mapping[str, int]) -> str:
    """The number of controls that show a change, of the controls that were run, as text.

    Example:
        >>> from rl_sentinel.recall.page import share
        >>> share({"changed": 1, "run": 4}), share({"changed": 0, "run": 0})
        ('1 of 4', 'not run')
    """
    return f"{counts['changed']} of {counts['run']}" if counts["run"] else "not run"


def _control(name: str) -> str:
    if name == "other_function":
        return "the function of another bug in the same two audits"
    return "the same function around a neighboring commit that fixes nothing"


def _line(row: Row) -> str:
    c = row.comparison
    findings = "; ".join(_unique(f"{v.law} ({v.level}) at `{_short(v.boundary)}`" for v in c.found))
    reason = " ".join(filter(None, (findings, c.detail))).replace("|", "/")
    cell = " ".join(reason.split())
    cut = cell if len(cell) <= _CELL else f"{cell[: _CELL - 3]}..."
    return f"| {row.bug.id} | `{row.bug.function}` | {c.outcome} | {cut} |"


def _short(path: str) -> str:
    """A boundary's path with the last two parts of each dotted name."""
    return " -> ".join(".".join(part.split(".")[-2:]) for part in path.split(" -> "))


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _level(row: Row) -> str:
    """The worst level of the findings that catch a bug."""
    return "fault" if any(v.level == "fault" for v in row.comparison.found) else "contested"


def _row_as_json(row: Row) -> dict[str, Any]:
    bug, comparison = row.bug, row.comparison
    return {
        "id": bug.id,
        "framework": bug.framework,
        "cpu": bug.cpu,
        "file": bug.file,
        "function": bug.function,
        "functions": list(row.functions),
        "outcome": comparison.outcome,
        "detail": comparison.detail,
        "found": [asdict(v) for v in comparison.found],
        "controls": asdict(row.controls),
    }
