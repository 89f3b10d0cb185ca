"""What a record says of itself in several places."""

import pytest
import torch

from report_fixtures import evidence
from rl_sentinel.audit.engine.finding_identity import contradiction, identifier, signature
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Case
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


@pytest.mark.parametrize(("framework", "level", "valid"), [("own", "hazard", True), ("own", "contested", False)])
def test_levels_of_functions_of_a_user(framework: str, level: str, valid: bool) -> None:
    assert (_contradiction_of_removal(framework, level) == "") is valid


def test_a_recipe_of_the_trainer_may_have_functions_of_either_kind() -> None:
    found = {level: _contradiction_of_removal("rl_sentinel.train", level) for level in ("hazard", "fault", "contested")}
    assert [level for level, text in found.items() if not text] == ["hazard", "fault"]


def _contradiction_of_removal(framework: str, level: str) -> str:
    """What contradicts the level of a finding of MSK006, in which a row without a trained token was not rejected."""
    case = Case(batch_of(torch.tensor([[True], [False]])), draw={"row": 1})
    record = {"boundary": "m.f", "target": {"framework": framework}, "level": level}
    return contradiction(record, laws()["MSK006"], case)
