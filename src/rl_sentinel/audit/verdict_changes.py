"""Compare the verdicts of two audits: which findings came, went and stayed, and which pairs differ at all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rl_sentinel.audit.findings import LEVELS, Audit


class Pair(NamedTuple):
    """A law at a boundary under a setting; ``law`` is ``*`` where the boundary is not bound."""

    law: str
    boundary: str
    setting: str


class Result(NamedTuple):
    """What one audit says of a pair; ``level`` is empty where it is not broken, or the report does not state it."""

    outcome: str
    level: str
    reason: str

    def __str__(self) -> str:
        """Outcome and level."""
        return f"{self.outcome} ({self.level})" if self.level else self.outcome

    def is_finding(self, level: str) -> bool:
        """Whether it is broken at this level or a worse one."""
        return self.outcome == "broken" and LEVELS.index(self.level or LEVELS[0]) <= LEVELS.index(level)


Results = Mapping[Pair, Result]

Status = Literal["came", "went", "stayed"]


@dataclass(frozen=True, slots=True)
class Change:
    """A finding of one audit or both.

    Attributes:
        status: ``came`` is in the new audit only, ``went`` in the old one only.
        level: the level of the new audit where it has the finding, else of the old one.
        sentence: what goes wrong.
        other: what the audit without the finding says of the pair; empty where it stayed.
        judged: whether that audit compared something there. A finding that went unjudged is not fixed.
        settings: where this is so.
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


def results_of_report(report: Mapping[str, Any]) -> dict[Pair, Result]:
    """The results of one object of ``audit --json`` by pair."""
    shown = {f["signature"]: f["evidence"] for f in report["findings"]}  # a report before 2026-12 has levels only here
    by_pair = {(e["law"], e["boundary"], e["setting"]): e for e in shown.values()}
    pairs = {}
    for v in report["verdicts"]:
        pair = Pair(v["law"], v["boundary"], v["setting"])
        level = v.get("level") or by_pair.get(pair, {}).get("level", "")
        pairs[pair] = Result(v["outcome"], level, v.get("sentence") or v.get("reason", ""))
    return pairs


def differ(before: Result, after: Result) -> bool:
    """Whether outcomes differ, or levels where both state one."""
    levels = {before.level, after.level}
    return before.outcome != after.outcome or (len(levels) > 1 and "" not in levels)


def changes(old: Results, new: Results, level: str) -> list[Change]:
    """The findings of both audits at a level or worse: came, went, stayed; settings of one story in one change."""
    stories: dict[Change, list[str]] = {}
    sentences: dict[Change, str] = {}
    for pair in sorted(old.keys() | new.keys()):
        before, after = old.get(pair), new.get(pair)
        in_old = before is not None and before.is_finding(level)
        in_new = after is not None and after.is_finding(level)
        finding = after if in_new else before if in_old else None
        if finding is not None:
            status: Status = "stayed" if in_old and in_new else "came" if in_new else "went"
            other = ("", True) if status == "stayed" else _other(pair, new if in_old else old)
            story = Change(status, finding.level, pair.law, pair.boundary, (), "", *other)
            stories.setdefault(story, []).append(pair.setting)
            sentences.setdefault(story, finding.reason)
    return [replace(story, settings=tuple(s), sentence=sentences[story]) for story, s in stories.items()]


def _other(pair: Pair, results: Results) -> tuple[str, bool]:
    """What an audit without the finding says of the pair, and whether it judged the pair."""
    result = results.get(pair)
    if result is None:
        return _absent(pair, results), False
    if result.outcome == "broken":
        return f"broken at level {result.level}", True
    reason = " ".join(result.reason.split())
    text = result.outcome.replace("-", " ")
    return (f"{text}: {reason}" if reason else text), result.outcome == "holds"


def _absent(pair: Pair, results: Results) -> str:
    """Why an audit has no verdict for a pair."""
    here = {p: r for p, r in results.items() if p.boundary == pair.boundary}
    unbound = next((r for p, r in here.items() if p.law == "*"), None)
    if unbound is not None:
        return f"not bound: {' '.join(unbound.reason.split())}"
    if not here:
        return "not bound"
    return "law not asked" if any(p.setting == pair.setting for p in here) else "setting is absent"


def bound_in_one_only(old: Results, new: Results) -> tuple[list[str], list[str]]:
    """The boundaries that only the old audit could bind, and those that only the new one could."""
    before, after = _bound(old), _bound(new)
    return sorted(before - after), sorted(after - before)


def _bound(pairs: Iterable[Pair]) -> set[str]:
    return {pair.boundary for pair in pairs if pair.law != "*"}


def came(changed: Sequence[Change]) -> list[Change]:
    """The findings that only the new audit has."""
    return [change for change in changed if change.status == "came"]
