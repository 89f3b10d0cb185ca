"""Correct implementations after public styles: no fault, and nothing contested but MSK001."""

import pytest

import rl_sentinel
from checks.public_styles import CONTESTED, STYLES, function

#: Styles that are tried in every run of the tests.
QUICK = {"grpo by reshape", "gae and returns", "grpo loss, advantages per row", "value loss, clipped", "k3"}


@pytest.mark.parametrize("style", [pytest.param(s, marks=() if s in QUICK else pytest.mark.slow) for s in STYLES])
def test_correct_implementations_have_no_fault(style: str) -> None:
    result = rl_sentinel.check(function(style), **STYLES[style][1])
    assert result.ok, result
    assert {finding.code for finding in result.findings} <= CONTESTED
    assert "REF001" in {v.law for v in result.verdicts if v.outcome == "holds"}
