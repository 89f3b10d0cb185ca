"""Evidence: all provenance, the effect counted, and a case that comes back."""

import json
import math
from typing import Any

import torch

from rl_sentinel.audit.worker.evidence import KIND, SCHEMA, evidence
from rl_sentinel.audit.worker.judging import Break
from rl_sentinel.audit.worker.main import laws
from rl_sentinel.audit.worker.request import Request
from rl_sentinel.cases.small import small_cases
from rl_sentinel.core.case import with_draw
from rl_sentinel.core.observation import Relation
from rl_sentinel.core.storage import case_from_json
from specimens import specimen

CASE = with_draw(small_cases()[0], variant=0)
REQUEST = Request(task="audit", framework="f", root="/r", version="1.0", target={"spec": "f==1.0"})


def _made(expected: Any, observed: Any, where: Any = None) -> dict[str, Any]:
    place = None if where is None else torch.tensor(where)
    relation = Relation("advantage", torch.tensor(expected), torch.tensor(observed), place, story="moved")
    boundary = specimen(lambda b: b.reward, reads="reward mask", path="m.f")
    found = Break(CASE, relation, 2.0, 0.1)
    return evidence(laws()["MSK001"], boundary, found, REQUEST, ("m.py", 7), ["import torch"], {"ray": "stand-in"})


def test_record_names_everything() -> None:
    """And is plain JSON."""
    record = json.loads(json.dumps(_made([[1.0, 2.0]], [[1.0, -2.0]]), allow_nan=False))
    assert (record["kind"], record["schema"]) == (KIND, SCHEMA)
    assert record["signature"] == "f:MSK001:m.f:default"
    assert record["target"] == {"spec": "f==1.0", "framework": "f", "version": "1.0"}
    assert record["source"] == {"file": "m.py", "line": 7}
    assert record["expected_invariant"] == "moved"
    assert record["observed_difference"] == [[0.0, -4.0]]
    assert record["loaded"] == {"ray": "stand-in"}
    back = case_from_json(record["constructed_scenario"])
    assert torch.equal(back.batch.reward, CASE.batch.reward)
    assert back.draw == {"variant": 0}


def test_effect_counts_what_moved_where_it_must_not() -> None:
    """A sign that flips, a number that is none, a place that does not count, a move within rounding."""
    effect = _made([[1.0, 1.0, 1.0, 1.0]], [[-1.0, math.nan, 5.0, 1.05]], [[True, True, False, True]])
    assert effect["training_signal_effect"] == {
        "leaked_positions": [[0, 0], [0, 1]],
        "leaked_token_count": 2,
        "sign_flips": 1,
        "non_crash": True,
    }
    assert effect["observed_variant"] == [[-1.0, "nan", 5.0, effect["observed_variant"][0][3]]]


def test_shapes_that_differ_have_no_difference() -> None:
    """It is said in words."""
    record = _made([1.0], [1.0, 2.0])
    assert record["observed_difference"] == "shapes differ"
    assert record["training_signal_effect"]["leaked_token_count"] == 0
