"""The JSON report: one object, the same for every target."""

from collections.abc import Sequence
from typing import Any

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.verdict import Verdict


def as_json(target: str, audit: Audit, found: Sequence[Finding], seconds: float) -> dict[str, Any]:
    """``target``, ``counts``, ``coverage``, ``seconds``, ``findings`` and all ``verdicts``."""
    tried = sum(1 for v in audit.verdicts if v.tried)
    return {
        "target": target,
        "counts": audit.counts,
        "coverage": {
            "boundaries": audit.boundaries,
            "pairs": len(audit.verdicts),
            "tried": tried,
            "cases": sum(v.tried for v in audit.verdicts),
        },
        "seconds": round(seconds, 2),
        "findings": [_finding(f) for f in found],
        "verdicts": [_verdict(v) for v in audit.verdicts],
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "signature": f.signature,
        "law": f.law,
        "level": f.level,
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


def _verdict(v: Verdict) -> dict[str, Any]:
    names = ("law", "boundary", "setting", "outcome", "tried", "reason")
    shown = {n: getattr(v, n) for n in names}
    if v.outcome == "broken":
        shown |= {"level": v.evidence["level"], "status": v.evidence["status"]}
        shown["sentence"] = v.evidence["expectation"]["sentence"]
    return shown
