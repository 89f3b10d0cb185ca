"""Compare the audits before and after a fix: the bug is caught, or there is a reason why not."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rl_sentinel.recall.narrow_audit import Judged, NarrowAudit

#: Levels that an audit without options shows.
SHOWN_LEVELS = ("fault", "contested")

Outcome = Literal[
    "caught",
    "no fix",
    "still found",
    "not judged after",
    "holds",
    "no law",
    "errored",
    "unbound",
    "no boundary",
    "failed",
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result for one bug: the outcome, the broken verdicts that show the bug, and a sentence with details."""

    outcome: Outcome
    found: tuple[Judged, ...] = ()
    detail: str = ""


def compare(before: NarrowAudit, after: NarrowAudit | None, functions: Sequence[str]) -> Comparison:
    """Compare the verdicts at these functions: a bug is caught if a finding before the fix becomes *holds* after it.

    The law must hold at the same boundary and setting; if the boundary has no such setting after the fix, under all
    settings. If the law is still broken, an output that broke before the fix, and is compared and holds after it, is
    enough: the remaining finding is another bug. ``after`` is None if the bug is not fixed yet.
    """
    if before.error:
        return Comparison("failed", detail=f"before the fix: {before.error}")
    relevant = before.at(functions)
    found = [v for v in relevant if v.outcome == "broken" and v.level in SHOWN_LEVELS]
    if not found:
        return _without_finding(relevant)
    return Comparison("no fix", tuple(found)) if after is None else _after_fix(found, after)


def _after_fix(found: Sequence[Judged], after: NarrowAudit) -> Comparison:
    """The outcome of a bug with a finding before the fix."""
    if after.error:
        return Comparison("failed", tuple(found), f"after the fix: {after.error}")
    if caught := [v for v in found if _holds(v, after)]:
        return Comparison("caught", tuple(caught))
    if repaired := {v: names for v in found if (names := _repaired(v, after))}:
        outputs = ", ".join(sorted(set().union(*repaired.values())))
        detail = f"by output: {outputs} holds; the law is still broken at other outputs"
        return Comparison("caught", tuple(repaired), detail)
    if remaining := [v for v in found if any(w.outcome == "broken" for w in _same(v, after))]:
        return Comparison("still found", tuple(remaining))
    reasons = sorted({w.reason or w.outcome for v in found for w in _same(v, after)})
    return Comparison("not judged after", tuple(found), "; ".join(reasons) or "the boundary is not bound after the fix")


def changed(before: NarrowAudit, after: NarrowAudit, functions: Sequence[str], without: Collection[str] = ()) -> bool:
    """Whether a verdict at the functions is broken before, and the law or one of its broken outputs holds after.

    Boundaries at ``without`` do not count.
    """
    excluded = {(v.boundary, v.setting) for v in before.at(without)}
    broken = [v for v in before.at(functions) if v.outcome == "broken" and v.level in SHOWN_LEVELS]
    remaining = [v for v in broken if (v.boundary, v.setting) not in excluded]
    return any(_holds(v, after) or _repaired(v, after) for v in remaining)


def _holds(finding: Judged, after: NarrowAudit) -> bool:
    """Whether the law of a finding holds at its boundary after the fix."""
    same = _same(finding, after)
    return bool(same) and all(v.outcome == "holds" for v in same)


def _repaired(finding: Judged, after: NarrowAudit) -> set[str]:
    """The outputs that broke before the fix, and are compared and hold in every matching verdict after the fix."""
    same = [v for v in _same(finding, after) if v.outcome in {"broken", "holds"}]
    if not any(v.outcome == "broken" for v in same) or len(same) < len(_same(finding, after)):
        return set()
    return {name for name in finding.broken if all(v.outcome == "holds" or name in v.held for v in same)}


def _same(finding: Judged, after: NarrowAudit) -> list[Judged]:
    """The verdicts after the fix for the law and the boundary of a finding, under the same setting.

    If the setting does not exist after the fix, the verdicts under all settings.

    If the fix added a function before the finding's function, the boundary is the chain that ends in the same function.
    """
    law = [v for v in after.verdicts if v.law == finding.law]
    last = finding.boundary.rpartition(" -> ")[2]
    pair = [v for v in law if v.pair == finding.pair] or [v for v in law if v.boundary.rpartition(" -> ")[2] == last]
    return [v for v in pair if v.setting == finding.setting] or pair


def _without_finding(relevant: Sequence[Judged]) -> Comparison:
    """The comparison for a bug without a finding before the fix, with the reason."""
    if not relevant:
        return Comparison("no boundary")
    if all(v.law == "*" for v in relevant):
        return Comparison("unbound", detail="; ".join(sorted({f"{v.boundary}: {v.reason}" for v in relevant})))
    if laws := _laws(relevant, "holds"):
        return Comparison("holds", detail=f"{laws} hold")
    if any(v.outcome == "broken" for v in relevant):
        return Comparison("holds", detail=f"{_laws(relevant, 'broken')} broken at level hazard only")
    errored = [v for v in relevant if v.outcome == "errored"]
    if errored:
        reasons = "; ".join(sorted({f"{v.boundary}: {v.reason}" for v in errored}))
        return Comparison("errored", detail=reasons)
    return Comparison("no law", detail="; ".join(_most_frequent(v.reason for v in relevant)))


def _laws(verdicts: Iterable[Judged], outcome: str) -> str:
    return " ".join(sorted({v.law for v in verdicts if v.outcome == outcome}))


def _most_frequent(reasons: Iterable[str]) -> list[str]:
    texts = list(reasons)
    return sorted(set(texts), key=lambda reason: (-texts.count(reason), reason))[:3]
