"""Evidence: a broken relation with its case and provenance, as plain JSON (schema 1)."""

import platform
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.audit.worker.identity import identifier, signature
from rl_sentinel.audit.worker.judging import Break
from rl_sentinel.audit.worker.request import Request
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.law import Law
from rl_sentinel.core.storage import case_as_json, plain

KIND = "rl_sentinel_training_signal_validation"
SCHEMA = 1


def _effect(found: Break) -> dict[str, Any]:
    expected, observed = found.relation.expected.double(), found.relation.observed.double()
    where = found.relation.where if found.relation.where is not None else torch.ones_like(expected).bool()
    if expected.shape != observed.shape:
        return {"leaked_positions": [], "leaked_token_count": 0, "sign_flips": 0, "non_crash": True}
    gap = (observed - expected).abs()
    leaked = where & ~(gap <= found.allowed)
    return {
        "leaked_positions": torch.nonzero(leaked).tolist(),
        "leaked_token_count": int(leaked.sum()),
        "sign_flips": int((leaked & (expected * observed < 0)).sum()),
        "non_crash": True,
    }


def _difference(expected: Tensor, observed: Tensor) -> Any:  # noqa: ANN401
    same = expected.shape == observed.shape
    return plain((observed.double() - expected.double()).float()) if same else "shapes differ"


def evidence(  # noqa: PLR0913 - provenance has these parts
    law: Law,
    boundary: Boundary,
    found: Break,
    request: Request,
    source: tuple[str, int],
    script: list[str],
    tiers: dict[str, str],
) -> dict[str, Any]:
    """One finding as the record that every report is made from."""
    framework = request.framework
    case = found.case
    named = (framework, law.code, boundary.path, case.setting)
    return {
        "kind": KIND,
        "schema": SCHEMA,
        "candidate_id": identifier(*named),
        "signature": signature(*named),
        "law": law.code,
        "law_name": law.name,
        "level": law.level(case),
        "target": dict(request.target) | {"framework": framework, "version": request.version},
        "boundary": boundary.path,
        "stage": boundary.stage,
        "source": {"file": source[0], "line": source[1]},
        "setting": case.setting,
        "knobs": dict(boundary.settings.get(case.setting, {})),
        "reach": boundary.reach,
        "claims": {k: {"value": c.value, "cite": c.cite} for k, c in boundary.claims.texts().items()},
        "reads": sorted(boundary.reads),
        "constructed_scenario": case_as_json(case, boundary.reads),
        "expected_invariant": found.relation.story,
        "observed": found.relation.key,
        "observed_baseline": plain(found.relation.expected),
        "observed_variant": plain(found.relation.observed),
        "observed_difference": _difference(found.relation.expected, found.relation.observed),
        "distance": str(found.distance),
        "allowed": found.allowed,
        "training_signal_effect": _effect(found),
        "quiet_training_signal_bug": law.level(case) != "hazard",
        "status": "reproduced",
        "could_be_intended": law.other_side(boundary),
        "shows_with": law.shows_with,
        "environment": {"python": platform.python_version(), "torch": torch.__version__},
        "loaded": tiers,
        "script": script,
        "replay": "rl-sentinel replay FILE [TARGET]",
    }
