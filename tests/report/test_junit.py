"""The JUnit report, read by a parser that CI systems use."""

from junitparser import Error, Failure, JUnitXml, Skipped

from report_fixtures import SENTENCE, results
from rl_sentinel.report.junit import as_junit


def test_junit_is_read_by_a_parser() -> None:
    """Both breaks fail, an error and a skipped pair beside them."""
    (suite,) = JUnitXml.fromstring(as_junit([results()]))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 2, 1, 1)
    by_name = {case.classname: case.result for case in suite}
    (failure,) = by_name["m.estimator"]
    assert isinstance(failure, Failure)
    assert (failure.type, failure.message) == ("fault", SENTENCE)
    assert "where     estimator" in failure.text
    assert by_name["m.caller"][0].text == "same cause as MSK001 at m.estimator [default]"
    assert by_name["m.sound"] == []
    assert isinstance(by_name["m.other"][0], Skipped)
    assert by_name["m.other"][0].message == "no mask & <none>"
    assert isinstance(by_name["m.lost"][0], Error)
    assert by_name["m.lost"][0].message == "ValueError: ?[1m no"


def test_accepted_findings_pass_in_junit() -> None:
    (suite,) = JUnitXml.fromstring(as_junit([results(accepted=True)]))
    assert suite.failures == 0
    (case,) = [case for case in suite if case.classname == "m.estimator"]
    assert case.system_out == f"fault: {SENTENCE}"
