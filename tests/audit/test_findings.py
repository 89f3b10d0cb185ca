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


def test_known_entry_counts_within_its_releases() -> None:
    """A level may be lowered, with its reason, in the releases that it names."""
    known = [Known("f:MSK001:m.estimator:default", "why", "", ">=1,<2", "hazard", accepted=False)]
    [inside] = findings(_audit(), known, "1.5")
    [outside] = findings(_audit(), known, "2.0")
    assert (inside.level, inside.known) == ("hazard", "why")
    assert (outside.level, outside.known) == ("fault", "")


def test_counts_show_all_four() -> None:
    """Nothing is left out of a summary."""
    audit = _audit()
    audit.verdicts.append(Verdict(law="X", boundary="b", setting="s", outcome="errored", reason="r"))
    assert audit.counts == {"holds": 0, "broken": 4, "not_applicable": 0, "errored": 1}
