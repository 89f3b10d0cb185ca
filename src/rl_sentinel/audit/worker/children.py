"""Forked children under watch: a crash, a hang or a wild allocation costs one pair and no other."""

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rl_sentinel.audit.worker.unit import CANARY, Event, Unit

#: Most seconds of processor time, and of the clock, that one pair may take.
PAIR_CPU_SECONDS, PAIR_CLOCK_SECONDS = 15.0, 90.0

#: Memory that a child may take beyond what the warm worker holds, in bytes.
MEMORY = 6 * 2**30

#: After so many crashes in one boundary its remaining pairs are errored, untried.
MOST_CRASHES = 3


@dataclass(slots=True)
class _Child:
    unit: Unit
    pid: int
    pipe: int
    law: str = CANARY
    since: float = field(default_factory=time.monotonic)
    cpu: float = 0.0
    rest: bytes = b""
    done: set[str] = field(default_factory=set)
    ended: bool = False


def run_all(units: list[Unit], jobs: int, send: Callable[[Event], None]) -> None:
    """Run every unit, ``jobs`` at a time, and send their verdicts."""
    waiting, running = list(reversed(units)), list[_Child]()
    crashes: dict[str, int] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_started(waiting.pop()))
        ready, _, _ = select.select([c.pipe for c in running], [], [], 0.25)
        for child in list(running):
            finished = child.pipe in ready and _read(child, send)
            late = "" if finished else _late(child)
            if late:
                os.kill(child.pid, signal.SIGKILL)
            if finished or late:
                running.remove(child)
                again = _buried(child, late, crashes, send)
                if again is not None:
                    waiting.append(again)


def _started(unit: Unit) -> _Child:
    here, there = os.pipe()
    pid = os.fork()
    if pid:
        os.close(there)
        return _Child(unit, pid, here)
    try:
        os.close(here)
        _limit()

        def send(event: Event) -> None:
            text = json.dumps(event).encode() + b"\n"
            while text:
                text = text[os.write(there, text) :]

        unit.run(send)
        send({"event": "end"})
    except BaseException as error:  # noqa: BLE001 - the parent tells the story of a child's end
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(70)
    os._exit(0)


def _limit() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path to build
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(child: _Child, send: Callable[[Event], None]) -> bool:
    """Forward what came; True at the end of the pipe."""
    data = os.read(child.pipe, 1 << 20)
    *lines, child.rest = (child.rest + data).split(b"\n")
    for line in lines:
        event = json.loads(line)
        if event["event"] == "start":
            child.law, child.since, child.cpu = event["law"], time.monotonic(), _cpu(child.pid)
        elif event["event"] == "end":
            child.ended = True
        else:
            if event["event"] == "verdict":
                child.done.add(event["law"])
            about = {"boundary": child.unit.boundary.path, "setting": child.unit.setting}
            send(about | event)
    return not data


def _cpu(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            parts = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _late(child: _Child) -> str:
    if _cpu(child.pid) - child.cpu > PAIR_CPU_SECONDS:
        return f"took more than {PAIR_CPU_SECONDS:g} s of processor time"
    if time.monotonic() - child.since > PAIR_CLOCK_SECONDS:
        return f"took more than {PAIR_CLOCK_SECONDS:g} s"
    return ""


def _buried(child: _Child, late: str, crashes: dict[str, int], send: Callable[[Event], None]) -> Unit | None:
    """Errored verdicts for what a dead child leaves; the unit to go on with, if any."""
    os.close(child.pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    if child.ended and not late:
        return None
    unit = child.unit
    crashes[unit.boundary.path] = crashes.get(unit.boundary.path, 0) + 1
    reason = late or (f"killed by signal {-status}" if status < 0 else f"ended with exit status {status}")
    left = [law for law in unit.laws if law.code not in child.done]
    spent = child.law == CANARY or crashes[unit.boundary.path] >= MOST_CRASHES
    for law in left:
        if spent or law.code == child.law:
            mine = child.law in {law.code, CANARY}
            words = f"the call {reason}" if mine else f"untried: {MOST_CRASHES} crashes in this function"
            about = {"law": law.code, "boundary": unit.boundary.path, "setting": unit.setting}
            send({"event": "verdict", **about, "outcome": "errored", "reason": words})
    remaining = [law for law in left if law.code != child.law]
    return None if spent or not remaining else replace(unit, laws=remaining)
