"""The results that report formats receive."""

from dataclasses import replace

import pytest

from report_fixtures import evidence, finding, results
from rl_sentinel.report.results import fails


def test_finding_of_a_verdict() -> None:
    """Its own, the one that it is folded under, or none."""
    made = results()
    assert made.finding_of(evidence()) is made.findings[0]
    assert made.finding_of(evidence(boundary="m.caller")) is made.findings[0]
    assert made.finding_of(evidence(boundary="m.absent")) is None


@pytest.mark.parametrize(
    ("level", "accepted", "expected"),
    [("fault", False, True), ("contested", False, True), ("hazard", False, False), ("fault", True, False)],
)
def test_what_fails(*, level: str, accepted: bool, expected: bool) -> None:
    assert fails(replace(finding(), level=level, accepted=accepted)) is expected
