"""A child that dies or hangs costs its own piece; a function that hung is recognized sooner."""

import os
from collections.abc import Callable

import pytest
import torch

from misbehaving_work import MisbehavingWork, enters_loop, loop, outcomes, slow, wait
from rl_sentinel.audit.sandbox import limits
from rl_sentinel.audit.sandbox.hang_detector import Time
from rl_sentinel.audit.sandbox.supervisor import _exceeded_limit

# Newer interpreters warn of a fork beside threads, which a parallel test run has; the worker has none.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: os._exit(3), "the call ended with exit status 3"),
        (lambda: os.kill(os.getpid(), 9), "the call was killed by signal 9"),
        (lambda: torch.zeros(20 * 2**30, dtype=torch.uint8), "the call ended with exit status 70"),
    ],
    ids=["exits", "is killed", "allocates"],
)
def test_accident_costs_one_piece(call: Callable[[], object], reason: str) -> None:
    found = outcomes([MisbehavingWork("f", {"A": lambda: None, "B": call, "C": lambda: None})])
    assert found == {("f", "A"): "did", ("f", "B"): reason, ("f", "C"): "did"}


def test_smoke_check_that_dies_costs_the_whole_job_and_no_other() -> None:
    work = [MisbehavingWork("f", {"A": lambda: None, "B": lambda: None}, smoke_check=lambda: os._exit(3))]
    found = outcomes([*work, MisbehavingWork("g", {"A": lambda: None})], jobs=2)
    dead = "the call ended with exit status 3"
    assert found == {("f", "A"): dead, ("f", "B"): dead, ("g", "A"): "did"}


def test_three_crashes_end_a_job() -> None:
    calls = {name: lambda: os._exit(3) for name in "ABCD"}
    found = outcomes([MisbehavingWork("f", dict(calls))])
    assert found["f", "C"] == "the call ended with exit status 3"
    assert found["f", "D"] == "not called, after 3 crashes or hangs in this function"


@pytest.mark.slow
def test_hang_is_shared_by_those_who_enter_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_CPU_SECONDS", 2.0)
    work = [
        MisbehavingWork("first", {"A": enters_loop}),
        MisbehavingWork("second", {"A": loop}),
        MisbehavingWork("slow", {"A": slow}),
    ]
    began = os.times()
    found = outcomes(work)
    spent = os.times().children_user - began.children_user
    line = loop.__code__.co_firstlineno
    assert found["first", "A"] == f"the call took more than 2 s of processor time, last in misbehaving_work.py:{line}"
    assert found["second", "A"] == f"the call is in misbehaving_work.py:{line}, where an earlier call did not return"
    assert found["slow", "A"] == "did"
    assert spent < 2 + 1 + 1 + 1


@pytest.mark.slow
def test_sleeper_is_caught_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_CLOCK_SECONDS", 2.0)
    monkeypatch.setattr(limits, "SUSPECT_CLOCK_SECONDS", 0.5)
    found = outcomes([MisbehavingWork("first", {"A": wait}), MisbehavingWork("second", {"A": wait})])
    line = wait.__code__.co_firstlineno
    assert found["first", "A"] == f"the call took more than 2 s, last in misbehaving_work.py:{line}"
    assert found["second", "A"] == f"the call is in misbehaving_work.py:{line}, where an earlier call did not return"


@pytest.mark.slow
def test_many_calls_may_take_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALL_CPU_SECONDS", 1.5)
    three = dict.fromkeys("ABC", slow)
    assert set(outcomes([MisbehavingWork("f", {**three})]).values()) == {"did"}
    monkeypatch.setattr(limits, "PAIR_CPU_SECONDS", 0.5)
    assert outcomes([MisbehavingWork("f", {"A": slow})]) == {
        ("f", "A"): "the call and others of the same law together took more than 0.5 s of processor time"
    }


def test_starved_call_is_not_taken_for_a_sleeper() -> None:
    assert _exceeded_limit(Time(6.0, 61.0)) == ""
    assert _exceeded_limit(Time(0.1, 61.0)) == "60 s"
    assert _exceeded_limit(Time(15.1, 61.0)) == "15 s of processor time"
    assert _exceeded_limit(Time(6.0, 241.0)) == "240 s"
