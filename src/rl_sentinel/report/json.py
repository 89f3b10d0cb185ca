"""The JSON report: one object for each target, as ``docs/report.schema.json`` describes it."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, cast

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from rl_sentinel import __version__
from rl_sentinel.audit.findings import Finding
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.results import Results

Level = Literal["fault", "contested", "hazard"]


class FindingObject(TypedDict):
    """A finding; a text that does not apply is empty.

    Attributes:
        signature: its name in known files.
        rows: number of rows of the counterexample.
        tokens: number of response positions of the counterexample.
        known: the reason from a known file for this release; ``known_from`` is that file.
        accepted: whether the user's known file lists it.
        level_note: a note if a known file states another level.
        elsewhere: the reason, if a known file lists it for other releases only.
        also: other places with the same cause: ``boundary [setting]``, after ``LAW at`` if another law is broken there.
        evidence: what ``rl-sentinel replay`` reads.
    """

    signature: str
    law: str
    level: Level
    boundary: str
    setting: str
    rows: int
    tokens: int
    known: str
    known_from: str
    accepted: bool
    level_note: str
    elsewhere: str
    also: list[str]
    evidence: Mapping[str, Any]


class VerdictObject(TypedDict):
    """A verdict; ``level``, ``status`` and ``sentence`` are set if the law is broken.

    ``reason`` says why a law is not applicable or is errored; else it is empty.
    """

    law: str
    boundary: str
    setting: str
    outcome: Literal["holds", "broken", "not-applicable", "errored"]
    tried: int
    reason: str
    level: NotRequired[Level]
    status: NotRequired[str]
    sentence: NotRequired[str]


class Coverage(TypedDict):
    """How much was audited: pairs of law and boundary, pairs that were tried, and their cases."""

    boundaries: int
    pairs: int
    tried: int
    cases: int


class Report(TypedDict):
    """The results of one target.

    ``status`` is the exit status of this target alone, and ``counts`` the number of verdicts by outcome.
    """

    version: str
    target: str
    seed: int
    status: int
    counts: dict[str, int]
    coverage: Coverage
    seconds: float
    findings: list[FindingObject]
    verdicts: list[VerdictObject]


def schema() -> dict[str, Any]:
    """The JSON schema of a file that ``--json`` writes: one report, or a list with one for each target."""
    return TypeAdapter(Report | list[Report]).json_schema()


def as_json(results: Results) -> Report:
    """The report of one target; its ``verdicts`` are sorted by boundary, setting and law."""
    audit = results.audit
    tried = sum(1 for v in audit.verdicts if v.tried)
    return {
        "version": __version__,
        "target": results.target,
        "seed": results.seed,
        "status": results.status,
        "counts": audit.counts,
        "coverage": {
            "boundaries": audit.boundaries,
            "pairs": len(audit.verdicts),
            "tried": tried,
            "cases": sum(v.tried for v in audit.verdicts),
        },
        "seconds": round(results.seconds, 2),
        "findings": [_finding(f) for f in results.findings],
        "verdicts": [_verdict(v) for v in sorted(audit.verdicts, key=lambda v: (v.boundary, v.setting, v.law))],
    }


def _finding(f: Finding) -> FindingObject:
    return {
        "signature": f.signature,
        "law": f.law,
        "level": cast("Level", f.level),
        "boundary": f.boundary,
        "setting": f.setting,
        "rows": f.rows,
        "tokens": f.tokens,
        "known": f.known,
        "known_from": f.known_from,
        "accepted": f.accepted,
        "level_note": f.level_note,
        "elsewhere": f.elsewhere,
        "also": list(f.also),
        "evidence": dict(f.evidence),
    }


def _verdict(v: Verdict) -> VerdictObject:
    verdict: VerdictObject = {
        "law": v.law,
        "boundary": v.boundary,
        "setting": v.setting,
        "outcome": v.outcome,
        "tried": v.tried,
        "reason": v.reason,
    }
    if v.outcome == "broken":
        verdict["level"], verdict["status"] = v.evidence["level"], v.evidence["status"]
        verdict["sentence"] = v.evidence["expectation"]["sentence"]
    return verdict
