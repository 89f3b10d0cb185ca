"""A finding as the reports receive it."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.audit.findings import Audit, Finding
from rl_sentinel.core.case import Case
from rl_sentinel.core.storage import case_as_json
from rl_sentinel.core.verdict import Verdict
from rl_sentinel.report.results import Results
from rl_sentinel.search.filled_batch import filled

#: All findings of `audit verl==0.9.1`; `make expect` rewrites it.
RELEASE = Path(__file__).parent / "report" / "verl-0.9.1.json"

#: What goes wrong.
SENTENCE = "row 1 is not trained, yet its reward moves advantage at row 0, token 0 from 0.5 to 0.25"

#: What names a finding, unless something else is given.
_NAMED = {"law": "MSK001", "boundary": "m.estimator", "setting": "default"}


def evidence(**changed: Any) -> dict[str, Any]:
    """The evidence of a law broken on two rows of one token."""
    batch = filled([[1], [0]], reward=[1, 0], group=[0, 0], dead="padding", scored=torch.tensor([True, True]))
    law, boundary, setting = (changed.get(k, v) for k, v in _NAMED.items())
    return {
        "kind": "rl_sentinel_training_signal_validation",
        "schema": 2,
        "candidate_id": "-".join(("verl", law, boundary.rpartition(".")[2], setting)).upper(),
        "signature": f"verl:{law}:{boundary}:{setting}",
        "law": law,
        "law_name": "dead-row-shifts-signal",
        "level": "fault",
        "target": {"spec": "verl==1.0", "framework": "verl", "version": "1.0", "commit": "", "digest": ""},
        "boundary": boundary,
        "stage": "advantage",
        "source": {"file": "m.py", "line": 10},
        "setting": setting,
        "knobs": {},
        "reach": "algorithm.adv_estimator=x",
        "claims": {},
        "constructed_scenario": case_as_json(Case(batch, setting, draw={"variant": 0}), ["reward"]),
        "expectation": {
            "kind": "Equal",
            "output": "advantage",
            "sentence": SENTENCE,
            "change": {
                "subject": "its reward",
                "column": "reward",
                "cell": [1],
                "before": 0.0,
                "after": 1.0,
                "cells": 1,
            },
            "results": [{"output": "advantage", "expected": [[0.5], [0.0]], "observed": [[0.25], [0.0]]}],
            "broken": {"cells": [[0, 0]], "count": 1},
        },
        "status": "reproduced",
        "could_be_intended": "",
        "shows_with": "",
        "environment": {"python": "3.11", "torch": "2.13.0+cpu"},
        "script": ["import torch", "print(1 + 1)"],
    } | changed


def finding(**changed: Any) -> Finding:
    given = evidence(**changed)
    return Finding(signature=given["signature"], level=given["level"], evidence=given)


def results(*, accepted: bool = False) -> Results:
    """One verdict of each outcome, and a second break that is folded under the finding."""
    same = evidence(boundary="m.caller")
    made = partial(Verdict, law="MSK001", setting="default")
    verdicts = [
        made(boundary="m.estimator", outcome="broken", tried=1, evidence=evidence()),
        made(boundary="m.caller", outcome="broken", tried=1, evidence=same),
        made(boundary="m.sound", outcome="holds", tried=3),
        made(boundary="m.other", outcome="not-applicable", reason="no mask & <none>"),
        made(boundary="m.lost", outcome="errored", reason="ValueError: \x1b[1m no"),
    ]
    found = [replace(finding(), also=("m.caller [default]",), accepted=accepted)]
    return Results(target="verl==1.0", audit=Audit(verdicts=verdicts, boundaries=5), findings=found, seconds=2.0)


def release() -> Results:
    """All findings of a real audit."""
    stored = json.loads(RELEASE.read_text(encoding="utf-8"))
    keys = ("signature", "level", "evidence", "known", "known_from", "elsewhere", "level_note", "accepted")
    return Results(
        target="verl==0.9.1",
        audit=Audit(),
        findings=[Finding(**{k: f[k] for k in keys}, also=tuple(f["also"])) for f in stored],
    )
