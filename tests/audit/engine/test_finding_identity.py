"""What a record says of itself in several places."""

import pytest

from report_fixtures import evidence
from rl_sentinel.audit.engine.finding_identity import contradiction, identifier, signature
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.storage import case_from_json


def _contradiction(**changed: str) -> str:
    record = evidence()
    return contradiction(record | changed, laws()["MSK001"], case_from_json(record["constructed_scenario"]))


def test_names_follow_from_what_is_run() -> None:
    named = ("verl", "MSK001", "m.estimator", "no-std")
    assert signature(*named) == "verl:MSK001:m.estimator:no-std"
    assert identifier(*named) == "VERL-MSK001-ESTIMATOR-NO-STD"


@pytest.mark.parametrize("key", ["setting", "signature", "candidate_id", "law_name", "level"])
def test_another_word_is_told(key: str) -> None:
    assert _contradiction(**{key: "x"}).startswith(f"[{key}] is 'x', expected '")


def test_whole_story_is_none() -> None:
    assert _contradiction() == ""
    record = evidence()
    case = case_from_json(record["constructed_scenario"])
    assert contradiction({k: v for k, v in record.items() if k != "level"}, laws()["MSK001"], case) == ""
