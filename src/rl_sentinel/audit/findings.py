"""Turn verdicts into findings, with levels and annotations from known files.

``_parent_of`` folds a symptom under its cause.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_sentinel.audit.known import Known
from rl_sentinel.core.verdict import OUTCOMES, Verdict

#: Numbers that differ by less than this count as equal.
_TOLERANCE = 1e-4

LEVELS = ("fault", "contested", "hazard")


def other_law(place: str) -> str:
    """The code of the law at a place of ``Finding.also``, or "" if it is the law of the finding."""
    found = re.match("([A-Z]+[0-9]+) at ", place)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken law at one boundary under one setting, with the other places that show the same cause.

    Attributes:
        signature: its name in known files and expectations.
        level: fault, contested or hazard.
        evidence: the stored counterexample.
        entered: functions of the target that ran, as ``file:line:name``.
        known: the reason from a known file for this release; ``known_from`` is that file.
        elsewhere: the reason, if a known file lists it for other releases only.
        level_note: a note if a known file states another level, with whether that level is used.
        accepted: whether the user's known file lists it.
        also: other places with the same cause: ``boundary [setting]``, after ``LAW at`` if another law is broken there.
        entry: the entry of a known file that lists it for this release.
    """

    signature: str
    level: str
    evidence: Mapping[str, Any]
    entered: tuple[str, ...] = ()
    known: str = ""
    known_from: str = ""
    elsewhere: str = ""
    level_note: str = ""
    accepted: bool = False
    also: tuple[str, ...] = ()
    entry: Known | None = None

    @property
    def law(self) -> str:
        """The code of the broken law."""
        return str(self.evidence["law"])

    @property
    def boundary(self) -> str:
        """The dotted path of the boundary."""
        return str(self.evidence["boundary"])

    @property
    def setting(self) -> str:
        """The name of the boundary's setting."""
        return str(self.evidence["setting"])

    @property
    def place(self) -> str:
        """``file:line`` of the called code."""
        source = self.evidence["source"]
        return f"{source['file']}:{source['line']}"

    @property
    def signatures(self) -> tuple[str, ...]:
        """The signatures of the finding and of the places folded under it."""
        framework, own_law, _ = self.signature.split(":", maxsplit=2)
        folded = []
        for place in self.also:
            other = other_law(place)
            law, location = other or own_law, place.removeprefix(f"{other} at ")
            boundary, _, setting = location.removesuffix("]").partition(" [")
            folded.append(f"{framework}:{law}:{boundary}:{setting}")
        return (self.signature, *folded)

    @property
    def rows(self) -> int:
        """Rows of the counterexample."""
        return len(self.evidence["constructed_scenario"]["batch"]["mask"]["values"])

    @property
    def tokens(self) -> int:
        """Response positions of the counterexample."""
        return len(self.evidence["constructed_scenario"]["batch"]["mask"]["values"][0])


@dataclass(slots=True)
class Audit:
    """The results of one audit.

    Attributes:
        verdicts: the verdicts so far.
        entered: boundary and setting -> the functions that its smoke check entered.
        boundaries: number of boundaries.
        pairs: number of verdicts that the worker plans, one per law, boundary and setting.
        stored: whether all results come from the cache.
        unchanged: the boundaries and settings with results from the cache.
        notes: how arguments were bound, and notes on exceptions.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    entered: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    boundaries: int = 0
    pairs: int = 0
    stored: bool = False
    unchanged: set[tuple[str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def take(self, event: Mapping[str, Any]) -> None:
        """Add one event of the worker."""
        kind = event["event"]
        if kind == "plan":
            self.pairs, self.boundaries = int(event["pairs"]), int(event["boundaries"])
        elif kind == "stored":
            self.stored = True
        elif kind == "unchanged":
            self.unchanged.add((event["boundary"], event["setting"]))
        elif kind == "note":
            self.notes.append(str(event["text"]))
        elif kind == "entered":
            self.entered[event["boundary"], event["setting"]] = tuple(event["names"])
        elif kind == "verdict":
            self.verdicts.append(Verdict(**{k: v for k, v in event.items() if k != "event"}))

    @property
    def counts(self) -> dict[str, int]:
        """Number of verdicts by outcome."""
        counter = Counter(v.outcome for v in self.verdicts)
        return {outcome.replace("-", "_"): counter[outcome] for outcome in OUTCOMES}


def findings(audit: Audit, known: Sequence[Known], version: str) -> list[Finding]:
    """The audit's findings, each symptom folded under its cause, worst level first.

    If the known entry of a cause lists the places of its symptoms, only these are folded; a symptom at another place
    stays a separate finding.

    Args:
        audit: the results.
        known: entries of known files; the first that matches a finding and its release annotates it.
        version: the release, or the version that a checkout states; empty if unknown.
    """
    broken = [
        Finding(
            signature=str(v.evidence["signature"]),
            level=str(v.evidence["level"]),
            evidence=v.evidence,
            entered=audit.entered.get((v.boundary, v.setting), ()),
        )
        for v in audit.verdicts
        if v.outcome == "broken"
    ]
    return sorted(_fold_and_annotate(broken, known, version), key=_rank)


def _fold_and_annotate(broken: Sequence[Finding], known: Sequence[Known], version: str) -> list[Finding]:
    """Fold and annotate findings; new places of a known cause are folded separately."""
    annotated, new = list[Finding](), list[Finding]()
    for cause, under in _folded(broken):
        entry = next((k for k in known if k.signature == cause.signature and k.covers(version)), None)
        symptoms = {p: f for p, f in under.items() if entry is None or entry.includes(p)}
        new += [f for p, f in under.items() if p not in symptoms]
        also = tuple(sorted(symptoms, key=lambda place: (bool(other_law(place)), place)))
        annotated.append(_annotated(replace(cause, also=also), entry, known, version))
    return annotated + _fold_and_annotate(new, known, version) if new else annotated


def _rank(finding: Finding) -> tuple[int, bool, str, str, str]:
    """The sort key of a report: within a level, outputs that move in the wrong direction come last."""
    wrong_direction = has_wrong_direction(finding.evidence)
    return LEVELS.index(finding.level), wrong_direction, finding.law, finding.boundary, finding.setting


def has_wrong_direction(evidence: Mapping[str, Any]) -> bool:
    """Whether the finding is an output that moves in the wrong direction, and not an output that does not move."""
    expectation = evidence.get("expectation", {})
    if expectation.get("kind") != "Moves" or not expectation["broken"]["cells"]:
        return False
    result = next((r for r in expectation["results"] if r["output"] == expectation["output"]), None)
    if result is None or result["expected"] is None:
        return False
    cell = expectation["broken"]["cells"][0]
    before, after = _number_at(result["expected"], cell), _number_at(result["observed"], cell)
    if before is None or after is None:
        return False
    return not math.isclose(before, after, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _number_at(value: Any, cell: Sequence[int]) -> float | None:  # noqa: ANN401 - numbers, or lists of them
    """The number at a cell; None if the tensor is stored in another shape."""
    for index in cell:
        if not isinstance(value, list) or index >= len(value):
            return None
        value = value[index]
    return float(value) if isinstance(value, int | float | str) else None


def _folded(broken: Iterable[Finding]) -> list[tuple[Finding, dict[str, Finding]]]:
    """Each cause, with the findings that are folded under this cause, by place.

    A signature counts once, at its worst level: an adapter may bind a function of an earlier release by two names.
    """
    unique = {f.signature: f for f in sorted(broken, key=lambda f: LEVELS.index(f.level), reverse=True)}.values()
    ordered = sorted(unique, key=lambda f: (f.boundary, f.setting != "default", f.setting, f.law))
    parent = {f.signature: _parent_of(f, ordered) for f in ordered}
    under: dict[str, dict[str, Finding]] = {}
    for finding in ordered:
        if parent[finding.signature] is None:
            continue
        top = finding
        while (above := parent[top.signature]) is not None:
            top = above
        law = "" if top.law == finding.law else f"{finding.law} at "
        under.setdefault(top.signature, {})[f"{law}{finding.boundary} [{finding.setting}]"] = finding
    return [(f, under.get(f.signature, {})) for f in ordered if parent[f.signature] is None]


def _callees(finding: Finding, ordered: Sequence[Finding]) -> list[Finding]:
    """Findings of the same law at functions that this finding's boundary calls or contains as a step."""
    inside = {":".join(name.split(":")[:2]) for name in finding.entered}
    place, parts = finding.place, finding.boundary.split(" -> ")
    return [
        o
        for o in ordered
        if o.law == finding.law
        and ((o.place in inside and o.place != place) or (len(parts) > 1 and o.boundary in parts))
    ]


def _parent_of(finding: Finding, ordered: Sequence[Finding]) -> Finding | None:
    """The finding under which a finding is folded, or None.

    Candidates in this order: the same law at a function that is called here, unless that finding has a cause in a
    function that is not called here; the same law at the same boundary under an earlier setting; the law named by
    ``shows_with`` at the same boundary and setting.
    """
    inside = _callees(finding, ordered)
    for other in inside:
        deeper = _callees(other, ordered)
        if not deeper or any(o in inside for o in deeper):
            return other
    for other in ordered[: ordered.index(finding)]:
        if other.law == finding.law and other.boundary == finding.boundary:
            return other
    partner = (finding.evidence.get("shows_with"), finding.boundary, finding.setting)
    return next((o for o in ordered if (o.law, o.boundary, o.setting) == partner), None)


def _annotated(finding: Finding, entry: Known | None, known: Sequence[Known], version: str) -> Finding:
    if entry is not None:
        text = entry.reason + (f" ({entry.link})" if entry.link else "")
        annotated = replace(finding, known=text, known_from=entry.source, accepted=entry.accepted, entry=entry)
        return _with_level(annotated, entry, version)
    listed = next((k for k in known if k.signature == finding.signature), None)
    if listed is None:
        return finding
    release = f"this is {version}" if version else "this target states no release"
    return replace(finding, elsewhere=f"known of releases {listed.releases}, and {release}: {listed.reason}")


def _with_level(finding: Finding, entry: Known, version: str) -> Finding:
    """The finding with the level of its known entry, if the entry sets the level of this release, and a note on it."""
    if entry.level in ("", finding.level):
        return finding
    if not entry.sets_level(version):
        note = f"stays {finding.level}: the known entry states {entry.level} without an upper bound on releases"
        return replace(finding, level_note=note)
    note = f"{finding.level} by the law; {entry.level} by the known entry for releases {entry.releases}"
    return replace(finding, level=entry.level, level_note=note)
