"""Evidence: all provenance, the effect counted, and a case that comes back."""

import json
import math
from typing import Any

import torch

from rl_sentinel.audit.engine.evidence import KIND, SCHEMA, evidence
from rl_sentinel.audit.engine.judge import Break
from rl_sentinel.audit.engine.worker import laws
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.case import with_draw
from rl_sentinel.core.expectations import Answers, Attempt, Change, Equal, Expectation, Listed, Refuses
from rl_sentinel.core.storage import case_from_json
from rl_sentinel.search.small_cases import small_cases
from specimens import specimen

CASE = with_draw(small_cases()[0], variant=0)
REQUEST = Request(task="audit", framework="f", root="/r", version="1.0", target={"spec": "f==1.0"})


def _made(expectation: Expectation, law: str = "MSK001") -> dict[str, Any]:
    boundary = specimen(lambda b: b.reward, reads="reward mask", path="m.f")
    found = Break(CASE, expectation, 2.0, 0.1)
    return evidence(
        laws()[law],
        boundary,
        found,
        REQUEST,
        {"m.g": ("m.py", 7), "n.f": ("n.py", 9)},
        ["import torch"],
        {"ray": "stand-in"},
    )


def test_record_names_everything() -> None:
    change = Change("its reward", "reward", (0,), 1.0, math.nan, 1)
    equal = Equal("advantage", torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, -2.0]]), change=change)
    record = json.loads(json.dumps(_made(equal), allow_nan=False))
    assert (record["kind"], record["schema"]) == (KIND, SCHEMA)
    assert record["signature"] == "f:MSK001:m.f:default"
    assert record["target"] == {"spec": "f==1.0", "framework": "f", "version": "1.0"}
    assert record["source"] == {"file": "m.py", "line": 7}
    assert record["places"] == {"m.g": "m.py:7", "n.f": "n.py:9"}
    assert record["expectation"] == {
        "kind": "Equal",
        "output": "advantage",
        "sentence": "its reward moves advantage at row 0, token 1 from 2 to -2",
        "change": {
            "subject": "its reward",
            "column": "reward",
            "cell": [0],
            "before": 1.0,
            "after": "nan",
            "cells": 1,
        },
        "results": [{"output": "advantage", "expected": [[1.0, 2.0]], "observed": [[1.0, -2.0]]}],
        "broken": {"cells": [[0, 1]], "count": 1},
    }
    assert record["loaded"] == {"ray": "stand-in"}
    back = case_from_json(record["constructed_scenario"])
    assert torch.equal(back.batch.reward, CASE.batch.reward)
    assert back.draw == {"variant": 0}


def test_the_listed_value_is_stored() -> None:
    stored = _made(Answers("kl", "NotImplementedError", listed=Listed("kind", "full")))["expectation"]
    assert stored["listed"] == {"name": "kind", "value": "full"}


def test_refusals_are_stored_with_their_words() -> None:
    refuses = Refuses("accepted", (Attempt("lone", "nothing is left", None), Attempt("none", "no rows", "rows is 0")))
    stored = _made(refuses)["expectation"]
    assert stored["sentence"] == "accepted, but must be refused: lone (nothing is left)"
    assert (stored["change"], stored["results"], stored["accepts"]) == (None, [], False)
    assert stored["attempts"] == [
        {"name": "lone", "reason": "nothing is left", "refusal": None},
        {"name": "none", "reason": "no rows", "refusal": "rows is 0"},
    ]
    assert stored["broken"] == {"cells": [[0]], "count": 1}


def test_only_contested_findings_have_another_side() -> None:
    """A law may have words for one level and none for another: a fault has no reading that makes it right."""
    equal = Equal("loss", torch.zeros(1), torch.ones(1))
    contested, fault = _made(equal, "REF001"), _made(equal, "MSK006")
    assert (contested["level"], fault["level"]) == ("contested", "fault")
    assert contested["could_be_intended"]
    assert laws()["MSK006"].intended
    assert fault["could_be_intended"] == ""
