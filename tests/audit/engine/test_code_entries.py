"""Which functions a process enters, with every way to enter one."""

import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rl_sentinel.audit.engine.code_entries import CodeEntries, is_supported
from rl_sentinel.audit.sandbox.forked_events import forked_events

pytestmark = pytest.mark.skipif(not is_supported(), reason="only CPython 3.11 counts the first calls of a function")

MODULE = """
import functools
from dataclasses import dataclass


def decorate(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


@decorate
def decorated(x):
    return x


def outer(x):
    def inner(y):
        return y
    return inner if x else inner(x)


def items(n):
    for i in range(n):
        yield i


@dataclass
class Loss:
    clip: float = 0.2

    def __post_init__(self):
        self.twice = 2 * self.clip

    @property
    def half(self):
        return self.clip / 2


def never():
    return 1


def lazily():
    import house_late
    return house_late.late()


def tested(x):
    return never() if x else 0


if len(str(outer)) < 0:
    raise AssertionError
"""

LATE = "def late():\n    return 1\n\n\ndef late_and_never():\n    return 2\n"


def _entered(folder: Path, run: Callable[[Any], object]) -> tuple[set[str], bool]:
    """Names of the functions that ``run`` enters in a child, and whether that is all."""
    (folder / "house_module.py").write_text(MODULE, encoding="utf-8")
    (folder / "house_late.py").write_text(LATE, encoding="utf-8")

    def work(send: Callable[[dict[str, Any]], None]) -> None:
        sys.path.insert(0, str(folder))
        entries = CodeEntries(folder)
        entries.install()
        module = importlib.import_module("house_module")
        before = entries.mark_loaded()
        entries.mark_forked()
        run(module)
        send({"event": "x", "before": before, "entered": entries.entered_since(), "complete": entries.is_complete()})

    [event] = forked_events(work)
    lines = {
        name: (folder / name).read_text(encoding="utf-8").split("\n") for name in ("house_module.py", "house_late.py")
    }
    assert ["house_module.py", MODULE[: MODULE.index("def decorate(")].count("\n") + 1] in event["before"]
    names = {lines[file][line - 1] for file, line in event["entered"]}
    return names, event["complete"]


def _in_thread(module: Any) -> None:
    thread = threading.Thread(target=module.never)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda m: m.never(), {"def never():"}),
        (lambda m: [m.never() for _ in range(100)], {"def never():"}),
        (lambda m: m.outer(0), {"def outer(x):"}),
        (lambda m: m.outer(1)(2), {"def outer(x):"}),
        (lambda m: m.decorated(1), {"def decorate(function):", "@decorate"}),
        (lambda m: list(m.items(2)), {"def items(n):"}),
        (lambda m: sorted([1, 2], key=lambda _: m.never()), {"def never():"}),  # called from C
        (lambda m: m.Loss().half, {"    def __post_init__(self):", "    @property"}),
        (_in_thread, {"def never():"}),
        (lambda m: type(m.never)(m.never.__code__, {})(), {"def never():"}),
        (lambda m: m.lazily(), {"def lazily():", "def late():"}),
        (lambda m: m.tested(0), {"def tested(x):"}),  # a branch that is not taken
        (lambda m: m.items(2), set()),  # nothing runs before the first item
        (lambda _m: None, set()),
    ],
)
def test_entered_functions(tmp_path: Path, run: Callable[[Any], object], names: set[str]) -> None:
    entered, complete = _entered(tmp_path, run)
    assert {name for name in entered if name} == names | ({"def late():"} if "def late():" in names else set())
    assert complete


def _forks(_module: object) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _spawns(_module: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    process.start()
    process.join()


@pytest.mark.parametrize(
    "run",
    [
        _forks,
        _spawns,
        lambda _m: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda _m: subprocess.Popen(["sleep", "0"]),
        lambda _m: os.system("true"),  # noqa: S605 - the event of this function is tested
        lambda m: m.never.__code__.replace(co_name="copy"),
    ],
    ids=["fork", "spawn", "subprocess", "not waited for", "system", "copied code"],
)
def test_other_processes_and_copied_code_are_not_seen_through(tmp_path: Path, run: Callable[[Any], object]) -> None:
    assert not _entered(tmp_path, run)[1]
