"""docs/findings.md is generated from audits and known findings."""

import json
from pathlib import Path

import findings_page

#: All findings of `audit verl==0.9.1`; `make expect` rewrites it.
FINDINGS = Path(__file__).parents[1] / "report" / "verl-0.9.1.json"


def test_page_has_the_findings_of_the_newest_verl() -> None:
    """``python scripts/findings_page.py REPORT.json ...`` rewrites it."""
    report = {"target": "verl==0.9.1", "findings": json.loads(FINDINGS.read_text(encoding="utf-8"))}
    section = findings_page.page([report]).partition("\n## ")[2]
    assert section in findings_page.PAGE.read_text(encoding="utf-8")


def test_revisions_are_named_by_their_commit() -> None:
    """A target without releases is named by the first figures of its commit."""
    report = {"target": "slime@HISTORY#624b824a898a", "findings": []}
    assert "| slime 624b824a8 | 0 | 0 | 0 |" in findings_page.page([report])
