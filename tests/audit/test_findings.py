"""Symptoms are folded under their cause, and known findings are annotated."""

from typing import Any

import pytest

from rl_sentinel.audit.findings import Audit, findings
from rl_sentinel.audit.known import Known
from rl_sentinel.core.verdict import Verdict


def _event(law: str, boundary: str, setting: str, line: int, shows_with: str = "") -> dict[str, Any]:
    evidence = {
        "signature": f"f:{law}:{boundary}:{setting}",
        "law": law,
        "boundary": boundary,
        "setting": setting,
        "level": "fault",
        "source": {"file": "m.py", "line": line},
        "shows_with": shows_with,
    }
    about = {"law": law, "boundary": boundary, "setting": setting}
    return {"event": "verdict", **about, "outcome": "broken", "tried": 1, "evidence": evidence}


def _audit() -> Audit:
    audit = Audit()
    audit.take(_event("MSK001", "m.estimator", "default", 10))
    audit.take(_event("MSK001", "m.estimator", "no-std", 10))
    audit.take(_event("MSK006", "m.estimator", "default", 10, "MSK001"))
    audit.take(_event("MSK001", "m.dispatch", "first", 99))
    audit.take({"event": "entered", "boundary": "m.dispatch", "setting": "first", "names": ["m.py:10:estimator"]})
    return audit


def test_one_cause_is_one_line() -> None:
    [finding] = findings(_audit(), [], "1.0")
    assert finding.signature == "f:MSK001:m.estimator:default"
    assert finding.also == ("m.dispatch [first]", "m.estimator [no-std]", "MSK006 at m.estimator [default]")
    folded = ("f:MSK001:m.dispatch:first", "f:MSK001:m.estimator:no-std", "f:MSK006:m.estimator:default")
    assert finding.signatures == (finding.signature, *folded)


def test_a_signature_is_one_finding() -> None:
    """A function that is bound twice has one finding."""
    audit = _audit()
    audit.take(_event("MSK001", "m.estimator", "default", 10))
    audit.take(_event("MSK001", "m.dispatch", "first", 99))
    [finding] = findings(audit, [], "1.0")
    assert finding.also == ("m.dispatch [first]", "m.estimator [no-std]", "MSK006 at m.estimator [default]")


@pytest.mark.parametrize("levels", [("fault", "hazard"), ("hazard", "fault")])
def test_a_signature_has_its_worst_level(levels: tuple[str, str]) -> None:
    """Whichever of the two comes first."""
    audit = Audit()
    for level in levels:
        event = _event("MSK001", "m.estimator", "default", 10)
        event["evidence"]["level"] = level
        audit.take(event)
    [finding] = findings(audit, [], "1.0")
    assert finding.level == "fault"


def test_pipeline_is_folded_under_its_part() -> None:
    """A pipeline that starts at the function of the finding has the same place in the source."""
    audit = _audit()
    audit.take(_event("MSK001", "m.estimator -> m.logged", "default", 10))
    [finding] = findings(audit, [], "1.0")
    assert "m.estimator -> m.logged [default]" in finding.also


def test_another_setting_of_what_is_entered_is_no_cause() -> None:
    audit = _audit()
    audit.take(_event("MSK001", "m.step", "second", 150))
    audit.take({"event": "entered", "boundary": "m.step", "setting": "second", "names": ["m.py:99:dispatch"]})
    cause, own = findings(audit, [], "1.0")
    assert (cause.signature, own.signature) == ("f:MSK001:m.estimator:default", "f:MSK001:m.step:second")
    audit.take({"event": "entered", "boundary": "m.step", "setting": "second", "names": ["m.py:99:d", "m.py:10:e"]})
    assert "m.step [second]" in findings(audit, [], "1.0")[0].also


def test_known_entry_counts_within_its_releases() -> None:
    known = [Known("f:MSK001:m.estimator:default", "why", "", ">=1,<2", "hazard", accepted=False)]
    [inside] = findings(_audit(), known, "1.5")
    [outside] = findings(_audit(), known, "2.0")
    assert (inside.level, inside.known, inside.elsewhere) == ("hazard", "why", "")
    assert inside.level_note == "fault by the law; hazard by the known entry for releases >=1,<2"
    assert (outside.level, outside.known) == ("fault", "")
    assert outside.elsewhere == "known of releases >=1,<2, and this is 2.0: why"
    [checkout] = findings(_audit(), known, "")
    assert checkout.elsewhere == "known of releases >=1,<2, and this target states no release: why"


@pytest.mark.parametrize("releases", ["", ">=1"])
def test_level_of_releases_that_are_not_known_yet_is_kept(releases: str) -> None:
    """An entry without an end of its range annotates later releases, and does not lower their level."""
    known = [Known("f:MSK001:m.estimator:default", "why", "", releases, "hazard", accepted=False)]
    [found] = findings(_audit(), known, "7.0")
    assert (found.level, found.known) == ("fault", "why")
    assert found.level_note == "stays fault: the known entry states hazard without an upper bound on releases"


def test_entry_of_this_release_is_taken_before_one_of_others() -> None:
    old = Known("f:MSK001:m.estimator:default", "old", "", "<1", "", accepted=False)
    new = Known("f:MSK001:m.estimator:default", "new", "", ">=1", "", accepted=False)
    assert [f.known for f in findings(_audit(), [old, new], "1.5")] == ["new"]


def test_file_of_an_entry_is_named() -> None:
    mine = Known("f:MSK001:m.estimator:default", "", "", "", "", accepted=True, source="mine.toml")
    theirs = Known("f:MSK001:m.estimator:default", "why", "", "", "", accepted=False, source="ships")
    assert [(f.known, f.known_from) for f in findings(_audit(), [mine, theirs], "1.0")] == [("", "mine.toml")]
    assert [(f.known, f.known_from) for f in findings(_audit(), [theirs], "1.0")] == [("why", "ships")]
    assert [f.known_from for f in findings(_audit(), [], "1.0")] == [""]


def _listed(*also: str) -> Known:
    return Known("f:MSK001:m.estimator:default", "why", "", "", "", accepted=True, also=also)


def test_new_place_of_a_known_finding_is_a_finding() -> None:
    whole = _listed("m.dispatch [first]", "m.estimator [no-std]", "MSK006 at m.estimator [default]")
    [same] = findings(_audit(), [whole], "1.0")
    assert (same.accepted, len(same.also)) == (True, 3)
    old, new = findings(_audit(), [_listed("m.dispatch [first]", "MSK006 at m.estimator [default]")], "1.0")
    assert (old.signature, old.accepted, new.signature, new.accepted, new.also) == (
        *("f:MSK001:m.estimator:default", True),
        *("f:MSK001:m.estimator:no-std", False, ()),
    )
    assert old.also == ("m.dispatch [first]", "MSK006 at m.estimator [default]")


def test_new_places_are_folded_among_themselves() -> None:
    audit = _audit()
    audit.take(_event("MSK001", "m.estimator", "other", 10))
    old = _listed("m.dispatch [first]", "MSK006 at m.estimator [default]")
    _, new = findings(audit, [old], "1.0")
    assert (new.signature, new.also) == ("f:MSK001:m.estimator:no-std", ("m.estimator [other]",))


def test_counts_have_all_four_outcomes() -> None:
    audit = _audit()
    audit.verdicts.append(Verdict(law="X", boundary="b", setting="s", outcome="errored", reason="r"))
    assert audit.counts == {"holds": 0, "broken": 4, "not_applicable": 0, "errored": 1}


def test_a_law_that_shows_with_another_does_so_under_the_same_setting() -> None:
    """Under another setting it has a cause of its own."""
    audit = Audit()
    audit.take(_event("MSK001", "m.estimator", "default", 10))
    audit.take(_event("MSK006", "m.estimator", "critic", 10, "MSK001"))
    assert [(f.law, f.setting, f.also) for f in findings(audit, [], "1.0")] == [
        ("MSK001", "default", ()),
        ("MSK006", "critic", ()),
    ]
