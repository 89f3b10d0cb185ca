"""What holds of an audit after a change: only what entered, read and described nothing of it."""

from typing import Any

import pytest

from rl_sentinel.audit.audit_record import AuditRecord
from rl_sentinel.audit.source.tree_state import TreeState

OLD = "def f():\n    return 1\n\n\ndef g():\n    return 2\n"
#: ``f`` changed, ``g`` moved by one line.
NEW = OLD.replace("return 1", "x = 3\n    return x")


def _verdict(boundary: str, **more: Any) -> dict[str, Any]:
    about = {"event": "verdict", "law": "A", "boundary": boundary, "setting": "s", "outcome": "holds", "tried": 1}
    return about | more


def _record(functions: list[list[Any]], *, reads: Any = (), loaded: Any = (), digest: str = "d", **verdict: Any) -> Any:
    record = AuditRecord(TreeState({"m.py": OLD}))
    about = {"boundary": "b", "setting": "s"}
    record.take({"event": "loaded-code", "functions": list(loaded), "reads": [], "modules": ["m.py"]})
    record.take({"event": "described", "digest": digest, **about})
    record.take({"event": "entered", "names": ["m.py:5:g", "m.py:0:C.__init__"], **about})
    record.take(_verdict("b", **verdict))
    record.take({"event": "used-code", "functions": functions, "reads": list(reads), "complete": True, **about})
    return AuditRecord.from_json(record.as_json())


def _unchanged(record: AuditRecord, text: str = NEW) -> AuditRecord | None:
    return record.unchanged_in(TreeState({"m.py": text}), {"digest": "new"})


def test_boundary_that_entered_no_changed_function_holds() -> None:
    same = _unchanged(_record([["m.py", 5]]))
    assert same is not None
    used, entered, verdict = same.events_of("b\ns")
    assert used["functions"] == [["m.py", 6]]
    assert entered["names"] == ["m.py:6:g", "m.py:0:C.__init__"]
    assert verdict == _verdict("b")


@pytest.mark.parametrize(
    "record",
    [
        _record([["m.py", 5], ["m.py", 1]]),  # entered
        _record([["m.py", 5]], reads=[["m.py", 1]]),  # read as text
        _record([["m.py", 5]], reads=[["m.py", 0]]),  # read as a file
        _record([["m.py", 5]], digest=""),  # not described
    ],
)
def test_boundary_that_used_it_does_not(record: AuditRecord) -> None:
    same = _unchanged(record)
    assert same is not None
    assert not same.events


def test_function_that_ran_while_the_target_was_loaded_decides_all() -> None:
    assert _unchanged(_record([["m.py", 5]], loaded=[["m.py", 1]])) is None
    assert _unchanged(_record([["m.py", 5]], loaded=[["m.py", 5]])) is not None


def test_change_outside_of_functions_decides_all() -> None:
    assert _unchanged(_record([["m.py", 5]]), f"SCALE = 1\n{OLD}") is None


def test_child_without_a_record_is_checked_again() -> None:
    record = AuditRecord(TreeState({"m.py": OLD}))
    record.take({"event": "described", "digest": "d", "boundary": "b", "setting": "s"})
    record.take(_verdict("b"))
    same = _unchanged(record)
    assert same is not None
    assert not same.events


def test_process_that_was_not_followed_is_checked_again() -> None:
    record = _record([["m.py", 5]])
    record.take(
        {"event": "used-code", "boundary": "b", "setting": "s", "functions": [], "reads": [], "complete": False}
    )
    same = _unchanged(record)
    assert same is not None
    assert not same.events


@pytest.mark.parametrize(
    ("reason", "moved"),
    [
        ("IndexError: x at m.py:6", "IndexError: x at m.py:7"),
        ("IndexError: x at other.py:6", "IndexError: x at other.py:6"),
        ("IndexError: x at m.py:2", None),  # a line of the changed function
        ("error in m.py, line 6", None),
    ],
)
def test_lines_in_reasons(reason: str, moved: str | None) -> None:
    same = _unchanged(_record([["m.py", 5]], reason=reason))
    assert same is not None
    assert [event["reason"] for events in same.events.values() for event in events if "reason" in event] == (
        [moved] if moved else []
    )


def test_evidence_names_the_new_tree_and_line() -> None:
    evidence = {
        "target": {"digest": "old", "framework": "verl"},
        "source": {"file": "m.py", "line": 5},
        "places": {"m.f": "m.py:5"},
        "reach": "as in m.py:6 of another release",
    }
    same = _unchanged(_record([["m.py", 5]], outcome="broken", evidence=evidence))
    assert same is not None
    moved = same.events["b\ns"][-1]["evidence"]
    assert moved["target"] == {"digest": "new", "framework": "verl"}
    assert moved["source"] == {"file": "m.py", "line": 6}
    assert moved["places"] == {"m.f": "m.py:6"}
    assert moved["reach"] == evidence["reach"]


def test_verdicts_by_chance_are_left_out() -> None:
    same = _unchanged(_record([["m.py", 5]]).drop_events(["b\ns"]))
    assert same is not None
    assert not same.events


def test_two_descriptions_of_one_name_are_checked_again() -> None:
    record = _record([["m.py", 5]])
    record.take({"event": "described", "digest": "d", "boundary": "b", "setting": "s"})
    same = _unchanged(record)
    assert same is not None
    assert not same.events
