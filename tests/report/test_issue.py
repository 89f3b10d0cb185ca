"""An issue says what a maintainer needs, on one page."""

from report_fixtures import SENTENCE, finding
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.report.issue import as_issue

VERL = Installation(packages="verl==1.0")


def test_an_issue() -> None:
    """Title, place, effect, input, result; the script where there is no test."""
    text = as_issue(finding(), VERL)
    title, _, *points = text.splitlines()
    assert title == f"# `estimator`: {SENTENCE}"
    assert points[:2] == ["- where: verl 1.0, `m.py`, line 10, setting default", "- level: fault"]
    assert "- already reported? not on the built-in list; search the tracker before filing" in points
    assert "expected advantage [[0.5], [0]]\nobserved advantage [[0.25], [0]]" in text
    assert "reward = [1, 0 -> 1]" in text
    assert "Script:\n\n```python\n# pip install torch==2.13.0 verl==1.0\n" in text
    assert len(text.splitlines()) <= 60


def test_the_other_side_is_said() -> None:
    """Nothing is said where no reading makes it right."""
    assert "intended" not in as_issue(finding(), VERL)
    contested = finding(could_be_intended="It may be meant.")
    assert "- could it be intended? It may be meant." in as_issue(contested, VERL)
