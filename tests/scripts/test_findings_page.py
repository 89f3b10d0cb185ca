"""docs/findings.md is generated from audits and known findings."""

import json
import re
from pathlib import Path

import findings_page

from rl_sentinel.audit.known import shipped

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


def test_sections_of_other_frameworks_stay() -> None:
    """A report replaces the row and the section of its framework alone."""
    both = findings_page.page([{"target": f"{name}==1.0", "findings": []} for name in ("verl", "trl")])
    after = findings_page.page([{"target": "verl==2.0", "findings": []}], both)
    assert after == both.replace("verl 1.0", "verl 2.0")


def test_places_are_listed_by_function() -> None:
    """A function that breaks a law at several settings is named once."""
    also = ["verl.algos.agg_loss [token-mean]", "MSK006 at verl.algos.agg_loss [scale]", "verl.ray.step [default]"]
    assert findings_page._places(also) == "`agg_loss` (token-mean; scale), `step` (default)"


def test_faults_without_a_report_have_a_suggested_fix() -> None:
    """Each fault that the trackers do not have can be reported with a change of a few lines."""
    sections = findings_page.PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) >= 5
    for framework, section in ((s.partition(" ")[0], s) for s in sections):
        fixes = {entry.signature for entry in shipped(framework) if entry.fix}
        for finding in section.split("\n### ")[1:]:
            law, _, name = finding.partition("\n")[0].partition(" at ")
            setting = name.partition("`, ")[2] or "default"
            function = re.search(r"^- function: `(.*)`$", finding, re.MULTILINE)
            assert function
            if "\nfault: " in finding and "\n- upstream: unreported" in finding:
                assert f"{framework}:{law}:{function[1]}:{setting}" in fixes
