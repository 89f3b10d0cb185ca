"""Symptoms are folded under their cause, and known findings are annotated."""

from typing import Any

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
    """The other setting, the law that shows with it, and the dispatch are all listed under it."""
    [finding] = findings(_audit(), [], "1.0")
    assert finding.signature == "f:MSK001:m.estimator:default"
    assert finding.also == ("m.dispatch [first]", "m.estimator [no-std]", "MSK006 at m.estimator [default]")


def test_another_setting_of_what_is_entered_is_no_cause() -> None:
    """A step that enters a dispatch, and not the estimator for whose sake the dispatch has a finding, has its own."""
    audit = _audit()
    audit.take(_event("MSK001", "m.step", "second", 150))
    audit.take({"event": "entered", "boundary": "m.step", "setting": "second", "names": ["m.py:99:dispatch"]})
    cause, own = findings(audit, [], "1.0")
    assert (cause.signature, own.signature) == ("f:MSK001:m.estimator:default", "f:MSK001:m.step:second")
    audit.take({"event": "entered", "boundary": "m.step", "setting": "second", "names": ["m.py:99:d", "m.py:10:e"]})
    assert "m.step [second]" in findings(audit, [], "1.0")[0].also


def test_known_entry_counts_within_its_releases() -> None:
    """A level may be lowered, with its reason, in the releases that it names."""
    known = [Known("f:MSK001:m.estimator:default", "why", "", ">=1,<2", "hazard", accepted=False)]
    [inside] = findings(_audit(), known, "1.5")
    [outside] = findings(_audit(), known, "2.0")
    assert (inside.level, inside.known, inside.elsewhere) == ("hazard", "why", "")
    assert (outside.level, outside.known) == ("fault", "")
    assert outside.elsewhere == "known of releases >=1,<2, and this is 2.0: why"
    [checkout] = findings(_audit(), known, "")
    assert checkout.elsewhere == "known of releases >=1,<2, and this states no release: why"


def test_entry_of_this_release_is_taken_before_one_of_others() -> None:
    """Two entries may name one finding, for two ranges of releases."""
    old = Known("f:MSK001:*", "old", "", "<1", "", accepted=False)
    new = Known("f:MSK001:*", "new", "", ">=1", "", accepted=False)
    assert [f.known for f in findings(_audit(), [old, new], "1.5")] == ["new"]


def test_whose_entry_it_is_goes_with_the_finding() -> None:
    """The user's own file comes before what ships, and is named."""
    mine = Known("f:MSK001:*", "", "", "", "", accepted=True, source="mine.toml")
    theirs = Known("f:MSK001:*", "why", "", "", "", accepted=False, source="ships")
    assert [(f.known, f.known_from) for f in findings(_audit(), [mine, theirs], "1.0")] == [("", "mine.toml")]
    assert [(f.known, f.known_from) for f in findings(_audit(), [theirs], "1.0")] == [("why", "ships")]
    assert [f.known_from for f in findings(_audit(), [], "1.0")] == [""]


def _recorded(*also: str) -> Known:
    return Known("f:MSK001:m.estimator:default", "why", "", "", "", accepted=True, also=also)


def test_news_under_a_known_finding_is_a_finding() -> None:
    """A place through which it was not known to show is told by itself, and accepted by nobody."""
    whole = _recorded("m.dispatch [*]", "m.estimator [no-std]", "MSK006 at m.estimator [default]")
    [same] = findings(_audit(), [whole], "1.0")
    assert (same.accepted, len(same.also)) == (True, 3)
    old, new = findings(_audit(), [_recorded("m.dispatch [first]", "MSK006 at m.estimator [default]")], "1.0")
    assert (old.signature, old.accepted, new.signature, new.accepted, new.also) == (
        *("f:MSK001:m.estimator:default", True),
        *("f:MSK001:m.estimator:no-std", False, ()),
    )
    assert old.also == ("m.dispatch [first]", "MSK006 at m.estimator [default]")


def test_news_are_folded_among_themselves() -> None:
    """Two new settings of one boundary are one finding."""
    audit = _audit()
    audit.take(_event("MSK001", "m.estimator", "other", 10))
    old = _recorded("m.dispatch [*]", "MSK006 at m.estimator [default]")
    _, new = findings(audit, [old], "1.0")
    assert (new.signature, new.also) == ("f:MSK001:m.estimator:no-std", ("m.estimator [other]",))


def test_counts_show_all_four() -> None:
    """Nothing is left out of a summary."""
    audit = _audit()
    audit.verdicts.append(Verdict(law="X", boundary="b", setting="s", outcome="errored", reason="r"))
    assert audit.counts == {"holds": 0, "broken": 4, "not_applicable": 0, "errored": 1}
