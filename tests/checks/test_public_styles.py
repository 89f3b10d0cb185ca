"""Correct implementations after public styles: no fault, and nothing contested but MSK001."""

import pytest

import rl_sentinel
from checks import credit_styles, grpo_container_styles, grpo_loss_styles, grpo_styles, loss_styles, token_styles
from checks.public_styles import CONTESTED, STYLES, function

_MORE = (grpo_styles, grpo_container_styles, credit_styles, loss_styles, grpo_loss_styles, token_styles)
ALL = {**STYLES, **{name: style for styles in _MORE for name, style in styles.STYLES.items()}}

#: Styles that are tried in every run of the tests.
QUICK = {
    *("grpo by reshape", "gae and returns", "grpo loss, advantages per row", "value loss, clipped", "k3"),
    *("rows: dicts written and returned", "lists per prompt", "class method no_grad", "grpo loss tinyrl"),
}

#: Stages whose functions have a formula without an algorithm.
DEFINED = {"logprob", "entropy"}


def test_every_style_has_its_own_name() -> None:
    assert len(ALL) == len(STYLES) + sum(len(styles.STYLES) for styles in _MORE)
    assert ALL.keys() >= QUICK


@pytest.mark.parametrize("style", [pytest.param(s, marks=() if s in QUICK else pytest.mark.slow) for s in ALL])
def test_correct_implementations_have_no_fault(style: str) -> None:
    source, options = ALL[style]
    result = rl_sentinel.check(function(source), **options)
    assert result.ok, result
    assert {finding.code for finding in result.findings} <= CONTESTED
    if options.get("algorithm") or options.get("claims") or options["stage"] in DEFINED:
        assert "REF001" in {v.law for v in result.verdicts if v.outcome == "holds"}
