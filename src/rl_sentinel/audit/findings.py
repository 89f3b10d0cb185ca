"""From verdicts to findings: counts, folding under the cause, levels, known entries."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rl_sentinel.audit.known import Known
from rl_sentinel.core.verdict import OUTCOMES, Verdict

LEVELS = ("fault", "contested", "hazard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken law at one boundary under one setting, with what is folded under it.

    ``known`` is why it is known of this release, ``known_from`` whose entry says so; ``elsewhere`` why it
    is known of others, and not of this one.
    """

    signature: str
    level: str
    evidence: Mapping[str, Any]
    entered: tuple[str, ...] = ()
    known: str = ""
    known_from: str = ""
    elsewhere: str = ""
    accepted: bool = False
    also: tuple[str, ...] = ()

    @property
    def law(self) -> str:
        """The law's code."""
        return str(self.evidence["law"])

    @property
    def boundary(self) -> str:
        """The dotted path."""
        return str(self.evidence["boundary"])

    @property
    def setting(self) -> str:
        """The setting family."""
        return str(self.evidence["setting"])

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
    """All that one audit saw."""

    verdicts: list[Verdict] = field(default_factory=list)
    entered: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    boundaries: int = 0
    pairs: int = 0

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event of the worker."""
        kind = event["event"]
        if kind == "plan":
            self.pairs, self.boundaries = int(event["pairs"]), int(event["boundaries"])
        elif kind == "entered":
            self.entered[event["boundary"], event["setting"]] = tuple(event["names"])
        elif kind == "verdict":
            self.verdicts.append(Verdict(**{k: v for k, v in event.items() if k != "event"}))

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs came to each outcome."""
        seen = Counter(v.outcome for v in self.verdicts)
        return {outcome.replace("-", "_"): seen[outcome] for outcome in OUTCOMES}


def findings(audit: Audit, known: Sequence[Known], version: str) -> list[Finding]:
    """The audit's findings, symptoms folded under their cause, worst level first.

    ``version`` is the release, or what a checkout states of itself; empty where it states none. A place that
    is not among those through which a known finding shows is no symptom of it: it is a finding of its own.
    """
    made = [
        Finding(
            signature=str(v.evidence["signature"]),
            level=str(v.evidence["level"]),
            evidence=v.evidence,
            entered=audit.entered.get((v.boundary, v.setting), ()),
        )
        for v in audit.verdicts
        if v.outcome == "broken"
    ]
    return sorted(_told(made, known, version), key=_rank)


def _told(made: Sequence[Finding], known: Sequence[Known], version: str) -> list[Finding]:
    """Findings folded and annotated; those that are news under a known cause are folded among themselves."""
    told, news = list[Finding](), list[Finding]()
    for cause, under in _folded(made):
        entry = _entry(cause, known, version)
        symptoms = {p: f for p, f in under.items() if entry is None or entry.shows_through(p)}
        news += [f for p, f in under.items() if p not in symptoms]
        also = tuple(sorted(symptoms, key=lambda place: (" at " in place, place)))
        told.append(_annotated(replace(cause, also=also), entry, known, version))
    return told + _told(news, known, version) if news else told


def _rank(finding: Finding) -> tuple[int, str, str, str]:
    return LEVELS.index(finding.level), finding.law, finding.boundary, finding.setting


def _place(finding: Finding) -> str:
    source = finding.evidence["source"]
    return f"{source['file']}:{source['line']}"


def _folded(made: Iterable[Finding]) -> list[tuple[Finding, dict[str, Finding]]]:
    """Each cause with what is folded under it, where the cause has a finding of its own.

    The cause is, in this order: the same law at a function that is entered here, unless that one has a
    cause of its own which is not entered here; the same law at the same boundary under an earlier setting;
    the law that shows with this one, at the same boundary.
    """
    ordered = sorted(made, key=lambda f: (f.boundary, f.setting != "default", f.setting, f.law))
    parent = {f.signature: _cause(f, ordered) for f in ordered}
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


def _entered(finding: Finding, ordered: Sequence[Finding]) -> list[Finding]:
    """Findings of the same law at functions that are entered on the way."""
    inside = {":".join(name.split(":")[:2]) for name in finding.entered}
    own = _place(finding)
    return [o for o in ordered if o.law == finding.law and _place(o) in inside and _place(o) != own]


def _cause(finding: Finding, ordered: Sequence[Finding]) -> Finding | None:
    inside = _entered(finding, ordered)
    for other in inside:
        deeper = _entered(other, ordered)
        if not deeper or any(o in inside for o in deeper):
            return other
    for other in ordered[: ordered.index(finding)]:
        if other.law == finding.law and other.boundary == finding.boundary:
            return other
    partner = finding.evidence.get("shows_with")
    return next((o for o in ordered if o.law == partner and o.boundary == finding.boundary), None)


def _entry(finding: Finding, known: Sequence[Known], version: str) -> Known | None:
    return next((k for k in known if k.names(finding.signature) and k.covers(version)), None)


def _annotated(finding: Finding, entry: Known | None, known: Sequence[Known], version: str) -> Finding:
    if entry is not None:
        text = entry.reason + (f" ({entry.link})" if entry.link else "")
        said = replace(finding, known=text, known_from=entry.source)
        return replace(said, level=entry.level or finding.level, accepted=entry.accepted)
    other = next((k for k in known if k.names(finding.signature)), None)
    if other is None:
        return finding
    this = f"this is {version}" if version else "this states no release"
    return replace(finding, elsewhere=f"known of releases {other.releases}, and {this}: {other.reason}")
