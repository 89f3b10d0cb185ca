"""CFG003 nonsense-accepted: a configuration accepts impossible or contradictory settings.

What it says:
    Impossible values, and pairs of settings that exclude each other, are refused before training.
    Settings that are claimed to be just within the limits are accepted: a check that refuses everything checks nothing.

Why it matters:
    Users assume that a run that starts follows its configuration. A mistake that one line could report at the start is
    found late in the curves, or never.

A boundary that breaks it:
    >>> def check(config):
    ...     if config["group_size"] < 1:
    ...         raise ValueError("group_size must be positive")
    >>> check({"group_size": 1, "baseline": "leave-one-out"})  # nothing is left to be the baseline

How to fix it:
    Check settings where the configuration is read, and refuse with the name of the setting, its value and
    the values that are allowed.

Where it does not apply:
    Boundaries that claim no setting that must be refused, or do not report whether they accept a setting (an output
    named ``accepted``).

Seen in:
    See the audit's reports.
"""

from collections.abc import Iterator
from dataclasses import replace

from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.case import Case, with_draw
from rl_sentinel.core.claims import SettingClaim
from rl_sentinel.core.errors import Refused
from rl_sentinel.core.expectations import Attempt, Expectation, Refuses
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Ask
from rl_sentinel.search.companion_cases import companion_pool


def _refused(boundary: Boundary) -> list[SettingClaim]:
    return [claim for claim in boundary.claims.refused if claim.name in boundary.settings]


def _applies(boundary: Boundary) -> str:
    if not _refused(boundary):
        return "the boundary claims no setting that must be refused"
    return "" if "accepted" in boundary.outputs else "the boundary does not say whether it accepts a setting"


def _attempt(ask: Ask, case: Case, claim: SettingClaim) -> Attempt:
    at = replace(case, setting=claim.name)
    if not ask.boundary.reads:
        at = replace(at, batch=companion_pool()[0].batch, seed=0)  # the answer is the same on every batch: asked once
    try:
        accepted = bool(ask(at).values["accepted"])
    except Refused as refusal:
        return Attempt(claim.name, claim.reason, str(refusal))
    return Attempt(claim.name, claim.reason, None if accepted else "")


def _expect(ask: Ask, case: Case) -> Iterator[Expectation]:
    """Compare all settings at once, so that a boundary has only one finding."""
    yield Refuses("accepted", tuple(_attempt(ask, case, claim) for claim in _refused(ask.boundary)))
    valid = [claim for claim in ask.boundary.claims.accepted if claim.name in ask.boundary.settings]
    attempts = tuple(_attempt(ask, case, claim) for claim in valid)
    yield Refuses("accepted", attempts, accepts=True, key="refused")


LAW = Law(
    code="CFG003",
    name="nonsense-accepted",
    stages=frozenset({"config"}),
    claims=("accepted", "refused"),
    applies=_applies,
    vary=lambda case, variant: with_draw(case, variant=variant),
    expect=_expect,
    level=lambda _case: "hazard",
    at_once=True,
)
