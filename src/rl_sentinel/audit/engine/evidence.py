"""Build evidence: a broken expectation with its case and provenance, as plain JSON (schema 2)."""

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from rl_sentinel.audit.engine.finding_identity import identifier, signature
from rl_sentinel.audit.engine.judge import Break
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.claim_text import claim_texts
from rl_sentinel.core.expectations import Answers, Expectation, Pair, Refuses
from rl_sentinel.core.law import Law
from rl_sentinel.core.storage import case_as_json, plain

KIND = "rl_sentinel_training_signal_validation"
SCHEMA = 2

#: Schemas that can be replayed, because they have law, boundary and case.
REPLAYABLE = (1, SCHEMA)

#: Fields of a ``Change`` that are numbers.
_CHANGED = ("before", "after")


def _expectation(expectation: Expectation) -> dict[str, Any]:
    """The expected and the observed values as JSON, with the sentence that describes the difference."""
    change, broken = getattr(expectation, "change", None), expectation.broken()
    stored: dict[str, Any] = {
        "kind": type(expectation).__name__,
        "output": expectation.output,
        "sentence": expectation.sentence(),
        "change": None if change is None else asdict(change) | {n: _json_number(getattr(change, n)) for n in _CHANGED},
        "results": [_result(pair) for pair in expectation.pairs()],
        "broken": {"cells": torch.nonzero(broken).tolist(), "count": int(broken.sum())},
    }
    if isinstance(expectation, Answers) and expectation.listed:
        stored["listed"] = expectation.listed._asdict()
    if isinstance(expectation, Refuses):
        stored |= {"accepts": expectation.accepts, "attempts": [one._asdict() for one in expectation.attempts]}
    return stored


def _result(pair: Pair) -> dict[str, Any]:
    expected = None if pair.expected is None else plain(pair.expected)
    return {"output": pair.output, "expected": expected, "observed": plain(pair.observed)}


def _json_number(number: float) -> float | str:
    """A number for JSON; non-finite numbers become strings."""
    return number if math.isfinite(number) else str(number)


def evidence(  # noqa: PLR0913 - provenance has these parts
    law: Law,
    boundary: Boundary,
    found: Break,
    request: Request,
    places: Mapping[str, tuple[str, int]],
    script: list[str],
    loaded: dict[str, str],
) -> dict[str, Any]:
    """The record of one finding, from which every report is made.

    ``places`` has the file and the line of each function of the boundary; the first is the source of the finding.
    ``loaded`` maps packages that the target imports to their source: ``light`` (fetched beside the target), ``fake`` (a
    replacement from this package) or ``stand-in`` (a placeholder, because the package is absent).
    """
    framework = request.framework
    case = found.case
    names = (framework, law.code, boundary.path, case.setting)
    level = law.level_at(boundary, case)
    source = next(iter(places.values()), ("", 0))
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "candidate_id": identifier(*names),
        "signature": signature(*names),
        "law": law.code,
        "law_name": law.name,
        "level": level,
        "target": dict(request.target) | {"framework": framework, "version": request.version},
        "boundary": boundary.path,
        "stage": boundary.stage,
        "source": {"file": source[0], "line": source[1]},
        "places": {path: f"{file}:{line}" for path, (file, line) in places.items()},
        "setting": case.setting,
        "knobs": dict(boundary.settings.get(case.setting, {})),
        "reach": boundary.reach,
        "claims": {k: {"value": c.value, "cite": c.cite} for k, c in claim_texts(boundary.claims).items()},
        "reads": sorted(boundary.reads),
        "constructed_scenario": case_as_json(case, boundary.reads),
        "expectation": _expectation(found.expectation),
        "distance": str(found.distance),
        "allowed": found.allowed,
        "quiet_training_signal_bug": level != "hazard",
        "status": "reproduced",
        "could_be_intended": law.intended_at(boundary) if level == "contested" else "",
        "shows_with": law.shows_with,
        "environment": {"python": platform.python_version(), "torch": torch.__version__},
        "loaded": loaded,
        "script": script,
        "replay": "rl-sentinel replay FILE [TARGET]",
    }
