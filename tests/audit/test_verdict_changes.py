"""Two audits compared: what came, went and stayed, and why the other audit has no such finding."""

import pytest

from rl_sentinel.audit.verdict_changes import Change, Pair, Result, bound_in_one_only, changes

FOUND = Result("broken", "fault", "loss is NaN")
HOLDS = Result("holds", "", "")
AT = Pair("FIN001", "m.f", "default")


def _went(other: str, *, judged: bool) -> Change:
    return Change("went", "fault", "FIN001", "m.f", ("default",), "loss is NaN", other, judged)


@pytest.mark.parametrize(
    ("after", "other", "judged"),
    [
        ({AT: HOLDS}, "holds", True),
        ({AT: Result("broken", "hazard", "x")}, "broken at level hazard", True),
        ({AT: Result("errored", "", "it\n  died")}, "errored: it died", False),
        ({AT: Result("not-applicable", "", "no claim")}, "not applicable: no claim", False),
        ({Pair("*", "m.f", "*"): Result("errored", "", "m.f is absent")}, "not bound: m.f is absent", False),
        ({}, "not bound", False),
        ({AT._replace(setting="other"): HOLDS}, "setting is absent", False),
        ({AT._replace(law="MSK001"): HOLDS}, "law not checked", False),
    ],
)
def test_finding_that_went_says_whether_it_was_judged(after: dict[Pair, Result], other: str, *, judged: bool) -> None:
    assert changes({AT: FOUND}, after, "contested") == [_went(other, judged=judged)]


def test_settings_of_one_story_are_one_change() -> None:
    new = {AT: FOUND, AT._replace(setting="b"): FOUND, AT._replace(setting="c"): FOUND}
    old = {AT: HOLDS, AT._replace(setting="b"): HOLDS, AT._replace(setting="c"): FOUND}
    came = Change("came", "fault", "FIN001", "m.f", ("b", "default"), "loss is NaN", "holds")
    stayed = Change("stayed", "fault", "FIN001", "m.f", ("c",), "loss is NaN")
    assert changes(old, new, "contested") == [came, stayed]


def test_level_is_that_which_is_shown() -> None:
    hazard = Result("broken", "hazard", "x")
    assert changes({AT: HOLDS}, {AT: hazard}, "contested") == []
    assert [c.status for c in changes({AT: HOLDS}, {AT: hazard}, "hazard")] == ["came"]


def test_boundaries_that_one_side_binds() -> None:
    unbound = {Pair("*", "m.g", "*"): Result("errored", "", "absent")}
    assert bound_in_one_only({AT: HOLDS} | unbound, {Pair("A", "m.g", "default"): HOLDS}) == (["m.f"], ["m.g"])
