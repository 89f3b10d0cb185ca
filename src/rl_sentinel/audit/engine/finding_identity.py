"""Names of findings, and the check that a stored finding agrees with its replay."""

from collections.abc import Mapping
from typing import Any

from rl_sentinel.core.case import Case
from rl_sentinel.core.law import Law
from rl_sentinel.core.phrasing import shortened

#: The framework of findings of the trainer with a recipe.
TRAINER = "rl_sentinel.train"


def contradiction(record: Mapping[str, Any], law: Law, case: Case) -> str:
    """A message about the first key of a record that contradicts its replay; empty if none does.

    A replay uses law, boundary and case. They determine the setting, the signature, the identifier, the law's name
    and the level. Missing keys are ignored.

    Example:
        >>> import torch
        >>> from rl_sentinel.audit.engine.finding_identity import contradiction
        >>> from rl_sentinel.audit.engine.worker import laws
        >>> from rl_sentinel.core.batch import batch_of
        >>> from rl_sentinel.core.case import Case
        >>> case = Case(batch_of(torch.ones(1, 1)), setting="no-std")
        >>> record = {"boundary": "m.f", "setting": "default", "target": {"framework": "f"}}
        >>> contradiction(record, laws()["GRP001"], case)
        "[setting] is 'default', expected 'no-std', by the case of the finding"
    """
    prefix = str(record.get("signature", "")).partition(":")[0]
    framework, boundary = str(record["target"].get("framework", prefix)), str(record["boundary"])
    expected = {
        "setting": (case.setting, "case"),
        "signature": (signature(framework, law.code, boundary, case.setting), "law, boundary and setting"),
        "candidate_id": (identifier(framework, law.code, boundary, case.setting), "law, boundary and setting"),
        "law_name": (law.name, "law"),
        "level": (_level(record, law, case), "case"),
    }
    for key, (value, source) in expected.items():
        if key in record and record[key] != value:
            return f"[{key}] is {shortened(record[key])}, expected {value!r}, by the {source} of the finding"
    return ""


def signature(framework: str, law: str, boundary: str, setting: str) -> str:
    """The name of a finding, stable over releases, lines and seeds."""
    return f"{framework}:{law}:{boundary}:{setting}"


def identifier(framework: str, law: str, boundary: str, setting: str) -> str:
    """A short identifier of a finding, for use in file names."""
    return "-".join((framework, law, boundary.rpartition(".")[2], setting)).upper()


def _level(record: Mapping[str, Any], law: Law, case: Case) -> str:
    """The level of a case: that of a user's function or of a framework; a recipe has functions of both kinds."""
    own = law.own_level(case) if law.own_level else law.level(case)
    framework = record.get("target", {}).get("framework")
    if framework == "own" or (framework == TRAINER and record.get("level") == own):
        return own
    return law.level(case)
