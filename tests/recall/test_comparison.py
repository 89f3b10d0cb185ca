"""Outcomes of a bug from the verdicts before and after its fix."""

from dataclasses import replace

import pytest

from rl_sentinel.recall.comparison import changed, compare
from rl_sentinel.recall.narrow_audit import Judged, NarrowAudit

BROKEN = Judged(law="MSK001", boundary="house.losses.loss", setting="default", outcome="broken", level="fault")
HOLDS = replace(BROKEN, outcome="holds", level="")
SILENT = replace(BROKEN, outcome="not-applicable", level="", reason="no group is claimed")
LOSS = ("losses.py:loss",)
TWO = replace(BROKEN, broken=("loss", "clip fraction"), held=("kl",))


def audit(*verdicts: Judged, error: str = "") -> NarrowAudit:
    return NarrowAudit(error=error, verdicts=verdicts)


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (audit(BROKEN), audit(HOLDS), "caught"),
        (audit(BROKEN), audit(replace(HOLDS, setting="other")), "caught"),
        (audit(BROKEN), audit(HOLDS, replace(BROKEN, setting="other")), "caught"),
        (audit(BROKEN), audit(replace(HOLDS, boundary="house.losses.scale -> house.losses.loss")), "caught"),
        (audit(BROKEN), audit(replace(BROKEN, boundary="house.losses.scale -> house.losses.loss")), "still found"),
        (audit(BROKEN), audit(replace(HOLDS, boundary="house.losses.loss -> house.kl.kl")), "not judged after"),
        (audit(BROKEN), audit(replace(HOLDS, law="MSK002")), "not judged after"),
        (audit(BROKEN), audit(SILENT), "not judged after"),
        (audit(BROKEN), audit(), "not judged after"),
        (audit(BROKEN), audit(BROKEN), "still found"),
        (audit(TWO), audit(replace(TWO, broken=("loss",), held=("clip fraction", "kl"))), "caught"),
        (audit(TWO), audit(replace(TWO, broken=("loss",), held=("kl",))), "still found"),
        (audit(TWO), audit(replace(TWO, broken=("clip fraction", "loss"))), "still found"),
        (audit(BROKEN), None, "no fix"),
        (audit(BROKEN), audit(error="cannot load"), "failed"),
        (audit(error="cannot load"), audit(HOLDS), "failed"),
        (audit(HOLDS, SILENT), audit(HOLDS), "holds"),
        (audit(replace(BROKEN, level="hazard")), audit(HOLDS), "holds"),
        (audit(SILENT), audit(HOLDS), "no law"),
        (audit(replace(SILENT, outcome="errored")), audit(HOLDS), "errored"),
        (audit(replace(SILENT, outcome="errored", law="*")), audit(HOLDS), "unbound"),
        (audit(replace(SILENT, outcome="not-applicable", law="*")), audit(HOLDS), "unbound"),
        (audit(replace(SILENT, outcome="not-applicable", law="*"), HOLDS), audit(HOLDS), "holds"),
        (audit(replace(BROKEN, boundary="house.kl.kl")), audit(HOLDS), "no boundary"),
    ],
)
def test_outcomes(before: NarrowAudit, after: NarrowAudit | None, outcome: str) -> None:
    assert compare(before, after, LOSS).outcome == outcome


def test_a_caller_counts_by_what_it_enters() -> None:
    caller = replace(BROKEN, boundary="house.trainer.step")
    entered = {("house.trainer.step", "default"): ("house/losses.py:3:loss",)}
    before, after = NarrowAudit(verdicts=(caller,), entered=entered), audit(replace(caller, outcome="holds"))
    assert compare(before, after, LOSS).outcome == "caught"
    assert compare(before, after, ("losses.py:reduce",)).outcome == "no boundary"


def test_the_repaired_output_is_named() -> None:
    after = audit(replace(TWO, broken=("loss",), held=("clip fraction",)))
    result = compare(audit(TWO), after, LOSS)
    assert result.detail == "by output: clip fraction holds; the law is still broken at other outputs"
    assert changed(audit(TWO), after, LOSS)
    assert not changed(audit(TWO), audit(TWO), LOSS)


def test_a_control_leaves_out_boundaries_that_enter_the_function() -> None:
    other = replace(BROKEN, boundary="house.kl.kl")
    before, after = audit(BROKEN, other), audit(HOLDS, replace(other, outcome="holds"))
    assert changed(before, after, ["kl.py:kl"], without=LOSS)
    entered = {("house.kl.kl", "default"): ("house/losses.py:3:loss",)}
    assert not changed(replace(before, entered=entered), after, ["kl.py:kl"], without=LOSS)


def test_reasons() -> None:
    assert compare(audit(SILENT), audit(HOLDS), LOSS).detail == "no group is claimed"
    assert compare(audit(HOLDS), audit(HOLDS), LOSS).detail == "MSK001 hold"
    assert compare(audit(BROKEN), audit(), LOSS).detail == "the boundary is not bound after the fix"
