"""Compare the verdicts of two audits: new, gone and unchanged findings, and pairs whose outcome differs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rl_sentinel.audit.findings import LEVELS, Audit


class Pair(NamedTuple):
    """A law at a boundary under a setting; ``law`` is ``*`` if the boundary is not bound."""

    law: str
    boundary: str
    setting: str


class Result(NamedTuple):
    """The result of one audit for a pair; ``level`` is empty if the law is not broken, or the level is unknown."""

    outcome: str
    level: str
    reason: str

    def __str__(self) -> str:
        """Outcome and level."""
        return f"{self.outcome} ({self.level})" if self.level else self.outcome

    def is_finding(self, level: str) -> bool:
        """Whether the law is broken at this level or a worse level."""
        return self.outcome == "broken" and LEVELS.index(self.level or LEVELS[0]) <= LEVELS.index(level)


Results = Mapping[Pair, Result]

Status = Literal["came", "went", "stayed"]


@dataclass(frozen=True, slots=True)
class Change:
    """A finding of one audit or both.

    Attributes:
        status: ``came`` is in the new audit only, ``went`` in the old one only.
        level: the level in the new audit if it has the finding, else in the old one.
        sentence: what goes wrong.
        other: the result of the audit that does not have the finding; empty if both audits have it.
        judged: whether the audit without the finding checked the pair; if not, the finding may not be fixed.
        settings: the settings with this change.
    """

    status: Status
    level: str
    law: str
    boundary: str
    settings: tuple[str, ...]
    sentence: str
    other: str = ""
    judged: bool = True


def results(audit: Audit) -> dict[Pair, Result]:
    """The results of an audit by pair."""
    return {
        Pair(v.law, v.boundary, v.setting): Result(
            v.outcome,
            str(v.evidence.get("level", "")),
            str(v.evidence["expectation"]["sentence"]) if v.evidence else v.reason,
        )
        for v in audit.verdicts
    }


def renamed(old: dict[Pair, Result], new: Results) -> dict[Pair, Result]:
    """The old results, renamed to the function of the new results if both are of one function.

    Example:
        >>> from rl_sentinel.audit.verdict_changes import Pair, Result, renamed
        >>> result = Result("holds", "", "")
        >>> old, new = Pair("MSK001", "older.f", "default"), Pair("MSK001", "mine.f", "default")
        >>> renamed({old: result}, {new: result}) == {new: result}
        True
    """
    names = {pair.boundary for pair in new}
    if len(names) != 1 or len({pair.boundary for pair in old}) != 1:
        return old
    return {pair._replace(boundary=next(iter(names))): one for pair, one in old.items()}


def results_of_report(report: Mapping[str, Any]) -> dict[Pair, Result]:
    """The results of one audit, by pair, from its object in the output of ``audit --json``."""
    # Reports before 2026-12 have levels only in the findings.
    by_pair = {(e["law"], e["boundary"], e["setting"]): e for e in (f["evidence"] for f in report["findings"])}
    pairs = {}
    for v in report["verdicts"]:
        pair = Pair(v["law"], v["boundary"], v["setting"])
        level = v.get("level") or by_pair.get(pair, {}).get("level", "")
        pairs[pair] = Result(v["outcome"], level, v.get("sentence") or v.get("reason", ""))
    return pairs


def differ(before: Result, after: Result) -> bool:
    """Whether the outcomes differ, or the levels if both are known."""
    levels = {before.level, after.level}
    return before.outcome != after.outcome or (len(levels) > 1 and "" not in levels)


def changes(old: Results, new: Results, level: str) -> list[Change]:
    """The new, gone and unchanged findings at a level or worse; settings with the same change are merged."""
    settings_of: dict[Change, list[str]] = {}
    sentence_of: dict[Change, str] = {}
    for pair in sorted(old.keys() | new.keys()):
        before, after = old.get(pair), new.get(pair)
        in_old = before is not None and before.is_finding(level)
        in_new = after is not None and after.is_finding(level)
        finding = after if in_new else before if in_old else None
        if finding is not None:
            status: Status = "stayed" if in_old and in_new else "came" if in_new else "went"
            counterpart = ("", True) if status == "stayed" else _result_without_finding(pair, new if in_old else old)
            change = Change(status, finding.level, pair.law, pair.boundary, (), "", *counterpart)
            settings_of.setdefault(change, []).append(pair.setting)
            sentence_of.setdefault(change, finding.reason)
    return [replace(change, settings=tuple(s), sentence=sentence_of[change]) for change, s in settings_of.items()]


def _result_without_finding(pair: Pair, results: Results) -> tuple[str, bool]:
    """The result of the audit that does not have the finding, and whether this audit checked the pair."""
    result = results.get(pair)
    if result is None:
        return _absent(pair, results), False
    if result.outcome == "broken":
        return f"broken at level {result.level}", True
    reason = " ".join(result.reason.split())
    text = result.outcome.replace("-", " ")
    return (f"{text}: {reason}" if reason else text), result.outcome == "holds"


def _absent(pair: Pair, results: Results) -> str:
    """The reason why an audit has no verdict for a pair."""
    at_boundary = {p: r for p, r in results.items() if p.boundary == pair.boundary}
    unbound = next((r for p, r in at_boundary.items() if p.law == "*"), None)
    if unbound is not None:
        return f"not bound: {' '.join(unbound.reason.split())}"
    if not at_boundary:
        return "not bound"
    return "law not checked" if any(p.setting == pair.setting for p in at_boundary) else "setting is absent"


def bound_in_one_only(old: Results, new: Results) -> tuple[list[str], list[str]]:
    """The boundaries that are bound only in the old audit, and the boundaries that are bound only in the new audit."""
    before, after = _bound(old), _bound(new)
    return sorted(before - after), sorted(after - before)


def _bound(pairs: Iterable[Pair]) -> set[str]:
    return {pair.boundary for pair in pairs if pair.law != "*"}


def came(changed: Sequence[Change]) -> list[Change]:
    """The findings that only the new audit has."""
    return [change for change in changed if change.status == "came"]
