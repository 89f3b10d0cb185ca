"""Which boundaries a narrow audit calls: those that can reach the functions by imports, and others only if need be."""

from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine import worker
from rl_sentinel.audit.engine.unit import Unit
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.boundary import Boundary, Output

REQUEST = Request(task="audit", framework="house", root="", version="", enters=("losses.py:loss",))


@pytest.mark.parametrize(
    ("enters", "called"), [(["near"], ["near"]), (["far"], ["near", "far"]), ([], ["near", "far"])]
)
def test_far_boundaries_are_called_if_no_near_one_enters(
    monkeypatch: pytest.MonkeyPatch, enters: list[str], called: list[str]
) -> None:
    target, ran, sent = Target(Path()), list[str](), list[dict[str, Any]]()
    bounds = [
        Boundary(path=path, stage="batch", steps=(), outputs={"x": Output("", "", "")}) for path in ("far", "near")
    ]
    work = [Unit(target, bound, "default", [], {}, REQUEST) for bound in bounds]

    def run_all(units: list[Unit], _jobs: int, send: Any) -> None:
        for unit in units:
            ran.append(unit.boundary.path)
            if unit.boundary.path in enters:
                send({"event": "entered", "boundary": unit.boundary.path})

    monkeypatch.setattr(worker, "can_reach", lambda _target, boundary, _functions: boundary.path == "near")
    monkeypatch.setattr(worker, "run_all", run_all)
    worker._run_narrow(target, work, REQUEST, sent.append)

    assert ran == called
    assert [event["boundary"] for event in sent] == enters
