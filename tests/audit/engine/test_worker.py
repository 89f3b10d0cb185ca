"""The worker as a process: a request in a file, events on a pipe."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit_fixtures import checkout
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.worker import carry_out, frameworks, laws
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.boundary import Unbound


def _served(folder: Path, request: Request) -> list[dict[str, Any]]:
    wish = folder / "request.json"
    wish.write_text(json.dumps(request.as_json()), encoding="utf-8")
    here, there = os.pipe()
    command = [sys.executable, "-m", "rl_sentinel.audit.engine.worker", str(wish), str(there)]
    with subprocess.Popen(command, pass_fds=(there,), cwd=folder) as process:
        os.close(there)
        with os.fdopen(here, encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        assert process.wait() == 0
    return found


def test_walks_find_what_there_is() -> None:
    assert {"verl", "areal", "skyrl", "slime", "own", "rl_sentinel"} <= set(frameworks())
    assert all(code == law.code for code, law in laws().items())
    assert list(laws()) == sorted(laws())


def test_what_a_release_lacks_is_no_error() -> None:
    """A function that does not exist is not applicable; one that cannot be bound is errored."""
    request = Request(task="boundaries", framework="verl", root="/", version="")
    lacking = Unbound("verl.f", "batch", "verl.f is absent", absent=True)
    misfit = Unbound("verl.g", "batch", "verl.g has no parameter 'masks'")
    events = list[dict[str, Any]]()
    carry_out(request, Target(Path("/")), [lacking, misfit], events.append)
    assert [(e["boundary"], e["outcome"]) for e in events] == [("verl.f", "not-applicable"), ("verl.g", "errored")]


def test_audit_ends_with_done(tmp_path: Path) -> None:
    root = str(checkout(tmp_path / "tree"))
    request = Request(
        task="audit",
        framework="verl",
        root=root,
        version="",
        laws=("MSK001",),
        boundaries=("*core_algos*gae*",),
        budget=4,
    )
    events = _served(tmp_path, request)
    plan, *between, done = events
    verdicts = [e for e in between if e["event"] == "verdict"]
    assert (plan["event"], plan["boundaries"], plan["pairs"]) == ("plan", 1, len(verdicts))
    assert {e["event"] for e in between} == {"entered", "verdict"}
    assert {e["boundary"] for e in between} == {"verl.trainer.ppo.core_algos.compute_gae_advantage_return"}
    assert {e["outcome"] for e in verdicts} <= {"holds", "broken"}
    assert done == {"event": "done"}


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_errored(tmp_path: Path) -> None:
    """Also one of which no boundary is left to say why."""
    tree = checkout(tmp_path / "tree")
    module = tree / "verl" / "utils" / "dataset" / "rl_dataset.py"
    module.parent.mkdir(parents=True)
    module.write_text("undefined\n", encoding="utf-8")
    request = Request(task="boundaries", framework="verl", root=str(tree), version="")
    errored = [e for e in _served(tmp_path, request) if e["event"] == "verdict" and e["outcome"] == "errored"]
    name = "verl.utils.dataset.rl_dataset"
    reasons = {e["boundary"]: e["reason"] for e in errored}
    assert reasons[name] == f"{name} cannot be imported (NameError: name 'undefined' is not defined)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"root": "/nonesuch"}, "Unbindable: verl is absent in /nonesuch, expected the folder that contains it"),
        (
            {"framework": "own", "root": "/", "function": "a:b", "stage": "x"},
            "--stage is 'x', expected one of advantage,",
        ),
    ],
    ids=["no tree", "no stage"],
)
@pytest.mark.slow
def test_failure_as_a_whole_is_one_event(tmp_path: Path, change: dict[str, str], message: str) -> None:
    given = {"task": "boundaries", "framework": "verl", "root": "/", "version": ""} | change
    [event] = _served(tmp_path, Request(**given))  # type: ignore[arg-type] # a task is a word here
    assert event["event"] == "failed"
    assert event["message"].startswith(message)


@pytest.mark.slow
def test_worker_without_a_reader_does_nothing(tmp_path: Path) -> None:
    here, there = os.pipe()
    os.close(here)
    command = [sys.executable, "-m", "rl_sentinel.audit.engine.worker", str(tmp_path / "never-read"), str(there)]
    run = subprocess.run(command, pass_fds=(there,), capture_output=True, check=False)
    os.close(there)
    assert (run.returncode, run.stderr) == (0, b"")
