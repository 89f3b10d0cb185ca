"""CFG003 nonsense-accepted.

What it says:
    Impossible values, and pairs of settings that exclude each other, are refused before training.
    What is claimed to be sound at their edge is accepted: a check that refuses everything checks nothing.

Why it matters:
    A run that starts is taken for a run that does what its configuration says. What could have
    been one line at the start is found, if ever, in the curves.

A boundary that breaks it:
    >>> def check(config):
    ...     if config["group_size"] < 1:
    ...         raise ValueError("group_size must be positive")
    >>> check({"group_size": 1, "baseline": "leave-one-out"})  # nothing is left to be the baseline

Where it does not apply:
    Boundaries that claim no setting that must be refused.

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from rl_sentinel.cases.companions import drawn
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import SettingClaim
from rl_sentinel.core.errors import Refused
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask, Relation


def _refused(boundary: Boundary) -> list[SettingClaim]:
    return [claim for claim in boundary.claims.refused if claim.name in boundary.settings]


def _applies(boundary: Boundary) -> str:
    if not _refused(boundary):
        return "it claims no setting to be nonsense"
    return "" if "accepted" in boundary.outputs else "it does not say whether it accepts a setting"


def _accepted(ask: Ask, case: Case, setting: str) -> float:
    at = replace(case, setting=setting)
    if not ask.boundary.reads:
        at = replace(at, batch=drawn()[0].batch, seed=0)  # the answer is the same on every batch: asked once
    try:
        return float(ask(at).values["accepted"])
    except Refused:
        return 0.0


def _relate(ask: Ask, case: Case) -> Iterator[Relation]:
    """All nonsense at once, so that a boundary has one finding."""
    refused = _refused(ask.boundary)
    answers = torch.tensor([_accepted(ask, case, claim.name) for claim in refused])
    told = [f"{claim.name} ({claim.reason})" for claim, a in zip(refused, answers, strict=True) if a]
    story = f"accepted, and expected to be refused: {'; '.join(told)}"
    yield Relation("accepted", torch.zeros_like(answers), answers, tolerance=0.5, story=story)
    valid = [claim for claim in ask.boundary.claims.accepted if claim.name in ask.boundary.settings]
    if valid:
        answers = torch.tensor([_accepted(ask, case, claim.name) for claim in valid])
        told = [f"{claim.name} ({claim.reason})" for claim, a in zip(valid, answers, strict=True) if not a]
        story = f"refused, and expected to be accepted: {'; '.join(told)}"
        yield Relation("refused", torch.ones_like(answers), answers, tolerance=0.5, story=story)


LAW = Law(
    code="CFG003",
    name="nonsense-accepted",
    stages=frozenset({"config"}),
    claims=("accepted", "refused"),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    relate=_relate,
    level=lambda _case: "hazard",
    at_once=True,
)
