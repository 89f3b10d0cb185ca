"""Reports for other tools: read by a real consumer of each, or looked at as a page."""

import json
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from sarif_pydantic import Sarif

from report_fixtures import SENTENCE, evidence, finding
from rl_sentinel.audit.findings import Audit, Finding, group_by_cause
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.html import as_html, grid
from rl_sentinel.report.junit import as_junit
from rl_sentinel.report.markdown import as_markdown
from rl_sentinel.report.results import Results
from rl_sentinel.report.sarif import as_sarif

RELEASE = Path(__file__).with_name("verl-0.9.1.json")


def _results(*, accepted: bool = False) -> Results:
    """One verdict of each outcome, and a second break that is folded under the finding."""
    same = evidence(boundary="m.caller")
    made = partial(Verdict, law="MSK001", setting="default")
    verdicts = [
        made(boundary="m.estimator", outcome="broken", tried=1, evidence=evidence()),
        made(boundary="m.caller", outcome="broken", tried=1, evidence=same),
        made(boundary="m.sound", outcome="holds", tried=3),
        made(boundary="m.other", outcome="not-applicable", reason="no mask & <none>"),
        made(boundary="m.lost", outcome="errored", reason="ValueError: \x1b[1m no"),
    ]
    found = [replace(finding(), also=("m.caller [default]",), accepted=accepted)]
    return Results(target="verl==1.0", audit=Audit(verdicts=verdicts, boundaries=5), found=found, seconds=2.0)


def _release() -> Results:
    """All findings of a real audit."""
    stored = json.loads(RELEASE.read_text(encoding="utf-8"))
    keys = ("signature", "level", "evidence", "known", "known_from", "elsewhere", "level_note", "accepted")
    return Results(
        target="verl==0.9.1",
        audit=Audit(),
        found=[Finding(**{k: f[k] for k in keys}, also=tuple(f["also"])) for f in stored],
    )


def test_junit_is_read_by_a_parser() -> None:
    """Both breaks fail, an error and a skipped pair beside them."""
    (suite,) = JUnitXml.fromstring(as_junit([_results()]))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 2, 1, 1)
    by_name = {case.classname: case.result for case in suite}
    (failure,) = by_name["m.estimator"]
    assert isinstance(failure, Failure)
    assert (failure.type, failure.message) == ("fault", SENTENCE)
    assert "where     m.estimator" in failure.text
    assert by_name["m.caller"][0].text == "same cause as MSK001 at m.estimator [default]"
    assert by_name["m.sound"] == []
    assert isinstance(by_name["m.other"][0], Skipped)
    assert by_name["m.other"][0].message == "no mask & <none>"
    assert isinstance(by_name["m.lost"][0], Error)
    assert by_name["m.lost"][0].message == "ValueError: ?[1m no"


def test_accepted_findings_pass_in_junit() -> None:
    (suite,) = JUnitXml.fromstring(as_junit([_results(accepted=True)]))
    assert suite.failures == 0
    (case,) = [case for case in suite if case.classname == "m.estimator"]
    assert case.system_out == f"fault: {SENTENCE}"


@pytest.mark.parametrize("results", [_results(), _release()], ids=["made", "release"])
def test_sarif_is_valid(results: Results) -> None:
    """Each finding once, at a line of a file."""
    log = Sarif.model_validate_json(as_sarif([results]))
    (run,) = log.runs
    assert [r.rule_id for r in run.results] == [f.law for f in results.found]
    for result in run.results:
        assert run.tool.driver.rules[result.rule_index].id == result.rule_id
        (place,) = result.locations
        assert place.physical_location.region.start_line >= 1


def test_sarif_suppresses_accepted_findings() -> None:
    (result,) = json.loads(as_sarif([_results(accepted=True)]))["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["suppressions"] == [{"kind": "external", "justification": "accepted"}]


def test_markdown_shows_what_fails() -> None:
    """Accepted findings are folded."""
    text = as_markdown([_results()])
    assert "| `verl==1.0` | 1 | 0 | 0 | 1 | 1 |" in text
    assert "### fault MSK001 at `estimator`" in text
    assert "<details>" not in text
    assert "<details><summary>accepted MSK001 at `estimator`" in as_markdown([_results(accepted=True)])


class _Page(HTMLParser):
    """Counts elements, and refuses tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name in ("src", "href") for name, _ in attrs), "the page loads nothing"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_whole() -> None:
    """Every finding of a release, with its grids; configuration findings have none."""
    results = _release()
    text = as_html([results])
    page = _Page()
    page.feed(text)
    assert page.open == []
    causes = group_by_cause(results.found)
    assert page.seen.count("section") == len(causes)
    assert page.seen.count("figure") > 3 * sum(not findings[0].law.startswith("CFG") for findings in causes)
    assert "reward" in text
    assert "&lt;" not in as_html([_results()]).partition("<body>")[0]


def test_changed_cell_is_marked() -> None:
    assert '<td class=" marked">0 → 1</td>' in as_html([_results()])
    assert [cell.colour for (cell,) in grid("x", [1.0, -1.0, 0.0, float("nan")]).rows] == ["plus", "minus", "", "nan"]
