"""The issue report has the sections that maintainers receive."""

import re

from report_fixtures import SENTENCE, finding
from rl_sentinel.adapters.installation import Installation
from rl_sentinel.report.issue import as_issue

VERL = Installation(packages="verl==1.0")


def test_sections_in_their_order() -> None:
    text = as_issue([(VERL, finding())])
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Summary",
        "Minimal example",
        "Source",
        "Validation recipe",
        "Runner",
        "Observed output",
        "Reach",
        "Could it be intended?",
        "Duplicate check",
    ]
    assert f"In verl 1.0, {SENTENCE}." in text
    assert "expected [[0.5], [0]]\nobserved [[0.25], [0]]" in text
    assert "`m.py`, line 10" in text
    assert "No reading is known that makes it right." in text


def test_what_differs_is_told_in_words_for_any_law() -> None:
    text = as_issue([(VERL, finding())])
    assert "leak" not in text
    assert '"differing_cells": [' in text


def test_packages_are_those_of_each_finding() -> None:
    text = as_issue([(VERL, finding()), (Installation(packages="skyrl==2.0"), finding())])
    assert re.findall(r"pip install torch==2.13.0 (.*)$", text, re.MULTILINE) == ["verl==1.0", "skyrl==2.0"]
