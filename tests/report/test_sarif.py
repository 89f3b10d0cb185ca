"""The SARIF report, validated against the model of the standard."""

import json

import pytest
from sarif_pydantic import Sarif

from report_fixtures import release, results
from rl_sentinel.report.results import Results
from rl_sentinel.report.sarif import as_sarif


@pytest.mark.parametrize("made", [results(), release()], ids=["made", "release"])
def test_sarif_is_valid(made: Results) -> None:
    """Each finding once, at a line of a file."""
    log = Sarif.model_validate_json(as_sarif([made]))
    (run,) = log.runs
    assert [r.rule_id for r in run.results] == [f.law for f in made.findings]
    for result in run.results:
        assert run.tool.driver.rules[result.rule_index].id == result.rule_id
        (place,) = result.locations
        assert place.physical_location.region.start_line >= 1


def test_sarif_suppresses_accepted_findings() -> None:
    (result,) = json.loads(as_sarif([results(accepted=True)]))["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["suppressions"] == [{"kind": "external", "justification": "accepted"}]
