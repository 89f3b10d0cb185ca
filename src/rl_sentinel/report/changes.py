"""The report of ``audit A --against B``: findings that came, went or stayed, and boundaries of one target only."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from rl_sentinel.audit.verdict_changes import Change, Results, bound_in_one_only, changes
from rl_sentinel.report.formatting import counted, wrapped


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two audits on the same cases; ``before`` and ``after`` are the targets as the user wrote them."""

    before: str
    after: str
    old: Results
    new: Results
    level: str

    @property
    def changes(self) -> list[Change]:
        """The findings of both audits as changes."""
        return changes(self.old, self.new, self.level)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """One object: ``target``, ``against``, ``came``, ``went``, ``stayed``, and boundaries bound in one audit only."""
    all_changes = comparison.changes
    before, after = bound_in_one_only(comparison.old, comparison.new)
    return {
        "target": comparison.after,
        "against": comparison.before,
        **{status: [asdict(c) for c in all_changes if c.status == status] for status in ("came", "went", "stayed")},
        "bound_only_in_target": after,
        "bound_only_in_against": before,
    }


def show(console: Console, comparison: Comparison, seconds: float) -> None:
    """Print the report; the console must not wrap lines itself (``soft_wrap=True``)."""
    all_changes = comparison.changes
    gone, came = [c for c in all_changes if c.status == "went"], [c for c in all_changes if c.status == "came"]
    stayed, unjudged = [c for c in all_changes if c.status == "stayed"], [c for c in gone if not c.judged]
    judged = [c for c in gone if c.judged]
    lines = wrapped(f"rl-sentinel audit {comparison.after} --against {comparison.before}", hanging="  ")
    counts = f"{len(came)} new, {len(judged)} gone, {len(unjudged)} not judged, {len(stayed)} unchanged"
    lines += wrapped(f"{counted(len(all_changes), 'finding')} in {seconds:.0f} s: {counts}", hanging="  ")
    lines += _block("new", came, f"in {comparison.before}")
    lines += _block("gone", judged, f"in {comparison.after}")
    lines += _block(f"not judged: not checked in {comparison.after}, so not shown to be fixed", unjudged, "now")
    lines += _block("unchanged", stayed, "")
    before, after = bound_in_one_only(comparison.old, comparison.new)
    lines += _bound(comparison.after, after) + _bound(comparison.before, before)
    for line in lines:
        console.print(line, markup=False, highlight=False)


def _block(heading: str, changes: Sequence[Change], other_target: str) -> list[str]:
    if not changes:
        return []
    lines = ["", *wrapped(heading, hanging="  ")]
    for change in changes:
        settings = "" if change.settings == ("default",) else f" [{', '.join(change.settings)}]"
        head = f"{change.level:<11}{change.law:<8}{change.boundary}{settings}"
        lines += wrapped(head, indent="  ", hanging=" " * 6)
        if change.status == "stayed":
            continue
        lines += wrapped(" ".join(change.sentence.split()), indent=" " * 6, hanging=" " * 6, lines=3)
        lines += wrapped(f"{other_target}: {change.other}", indent=" " * 6, hanging=" " * 8, lines=3)
    return lines


def _bound(target: str, boundaries: Sequence[str]) -> list[str]:
    if not boundaries:
        return []
    heading = f"{counted(len(boundaries), 'boundary', 'boundaries')} bound in {target} only:"
    return ["", *wrapped(heading, hanging="  "), *(f"  {path}" for path in boundaries)]
