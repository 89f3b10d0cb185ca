"""What a report recommends."""

from importlib import import_module
from typing import Any

import pytest

from report_fixtures import evidence
from rl_sentinel.audit.findings import has_wrong_direction
from rl_sentinel.report.advice import BY_STAGE, advice


def test_modules_of_stages_exist() -> None:
    for module in BY_STAGE.values():
        assert import_module(module)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"reach": "algorithm.adv_estimator=grpo"}, "set VERL_USE_EXTERNAL_MODULES="),
        (
            {"claims": {"algorithm": {"value": "rloo", "cite": ""}}},
            "compute it with rl_sentinel.signal.advantage.rloo.advantages",
        ),
        (
            {"claims": {"algorithm:advantage": {"value": "gspo", "cite": ""}}},
            "compute it with rl_sentinel.signal.loss.gspo.loss",
        ),
        (
            {"claims": {"algorithm": {"value": "unknown", "cite": ""}}, "stage": "kl"},
            "compute it with a function of rl_sentinel.signal.kl",
        ),
        ({"law": "CFG001"}, "do not rely on this setting"),
        ({"law": "PAR001"}, "use one of the two implementations everywhere"),
    ],
)
def test_advice_is_the_most_specific_one(changed: dict[str, Any], words: str) -> None:
    assert advice(evidence(**changed)).startswith(words)


def test_nothing_is_recommended_where_nothing_fits() -> None:
    assert advice(evidence(stage="batch")) == ""


@pytest.mark.parametrize(
    ("observed", "wrong_way", "words"),
    [
        ([[0.0], [0.0]], False, "put the outcome at the last trained token"),
        ([[-0.5], [0.0]], True, "compute it with rl_sentinel.signal.advantage.grpo.advantages"),
    ],
)
def test_outcome_that_arrives_with_the_wrong_sign_is_not_misplaced(
    observed: list[list[float]], *, wrong_way: bool, words: str
) -> None:
    said: dict[str, Any] = {
        "kind": "Moves",
        "output": "advantage",
        "results": [{"output": "advantage", "expected": [[0.0], [0.0]], "observed": observed}],
        "broken": {"cells": [[0, 0]], "count": 1},
    }
    claims = {"algorithm": {"value": "grpo", "cite": ""}}
    shown = evidence(law="PLC005", reach="", claims=claims)
    shown["expectation"] = {**shown["expectation"], **said}
    assert has_wrong_direction(shown) is wrong_way
    assert advice(shown).startswith(words)
