"""Run jobs in forked children: a crash, hang or memory blow-up loses only the piece that was running."""

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rl_sentinel.audit.sandbox import heartbeat, limits
from rl_sentinel.audit.sandbox.hang_detector import Suspects, Time
from rl_sentinel.audit.sandbox.heartbeat import CallCounter
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event, Job
from rl_sentinel.audit.sandbox.stack_dump import StackDump

#: Number of crashes or hangs after which the remaining pieces of a job are not tried.
MOST_CRASHES = 3


@dataclass(slots=True)
class _Child:
    """A running child: its job, the piece that it runs, its times, and the pieces that are done."""

    job: Job
    pid: int
    pipe: int
    calls: CallCounter
    stack_dump: StackDump
    piece: str = SMOKE_CHECK
    calls_seen: int = 0
    #: Processor time and wall-clock time at the start of the piece, and at the start of the last call.
    piece_start: Time = field(default_factory=lambda: Time(0.0, time.monotonic()))
    call_start: Time = field(default_factory=lambda: Time(0.0, time.monotonic()))
    stack_due: Time = field(default_factory=lambda: Time(limits.SUSPECT_CPU_SECONDS, limits.SUSPECT_CLOCK_SECONDS))
    partial_line: bytes = b""
    done: set[str] = field(default_factory=set)
    ended: bool = False

    def now(self) -> Time:
        return Time(limits.cpu_seconds(self.pid), time.monotonic())


def run_all(work: Sequence[Job], jobs: int, send: Callable[[Event], None]) -> None:
    """Run every job, ``jobs`` at a time, each in its own child, and send their events.

    A piece that crashes or hangs is not retried: its job goes on without it, until ``MOST_CRASHES`` pieces
    have crashed or hung, or the smoke check has crashed or hung.
    """
    if len(work) > jobs:  # a single function is not worth the time
        gc.collect()
    gc.freeze()  # a child that scanned loaded modules would copy every page
    waiting, running = list(reversed(work)), list[_Child]()
    crashes: dict[tuple[str, str], int] = {}
    suspects = Suspects()
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_start(waiting.pop()))
        ready, _, _ = select.select([c.pipe for c in running], [], [], 0.1)
        for child in list(running):
            finished = child.pipe in ready and _read_events(child, send)
            overdue = "" if finished else _overdue_reason(child, suspects)
            if overdue:
                os.kill(child.pid, signal.SIGKILL)
            if finished or overdue:
                running.remove(child)
                remaining_job = _handle_dead_child(child, overdue, crashes, send)
                if remaining_job is not None:
                    waiting.append(remaining_job)


def _start(job: Job) -> _Child:
    reader, writer = os.pipe()
    calls, stack = CallCounter(), StackDump()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        return _Child(job, pid, reader, calls, stack)
    try:
        os.close(reader)
        limits.die_with_parent()
        if os.getppid() != parent:
            os._exit(70)
        limits.limit_memory(limits.CHILD_MEMORY, permanent=True)
        heartbeat.adopt(calls)
        stack.install_handler()

        def send(event: Event) -> None:
            text = json.dumps(event).encode() + b"\n"
            while text:
                text = text[os.write(writer, text) :]

        job.run(send)
        send({"event": "end"})
    except BaseException as error:  # noqa: BLE001 - the parent reports how the child ended
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(70)
    os._exit(0)


def _read_events(child: _Child, send: Callable[[Event], None]) -> bool:
    """Forward received events; True at the end of the pipe."""
    data = os.read(child.pipe, 1 << 20)
    *lines, child.partial_line = (child.partial_line + data).split(b"\n")
    boundary, setting = child.job.name
    for line in lines:
        event = json.loads(line)
        if event["event"] == "start":
            child.piece, child.piece_start = event["law"], child.now()
            child.call_start = child.piece_start
        elif event["event"] == "end":
            child.ended = True
        else:
            if "law" in event:
                child.done.add(event["law"])
            send({"boundary": boundary, "setting": setting} | event)
    return not data


def _overdue_reason(child: _Child, suspects: Suspects) -> str:
    """The reason why the child must end now, or an empty string."""
    now, calls = child.now(), child.calls.count
    if calls != child.calls_seen:
        child.calls_seen, child.call_start = calls, now
        child.stack_due = Time(limits.SUSPECT_CPU_SECONDS, limits.SUSPECT_CLOCK_SECONDS)
    call, piece = now - child.call_start, now - child.piece_start
    limit = _exceeded_limit(call)
    if limit:
        stack = child.stack_dump.read(child.pid, child.job.root)
        where = suspects.add(stack, spins=call.cpu > limits.ASLEEP * call.clock)
        return f"took more than {limit}" + (f", last in {where}" if where else "")
    if piece.cpu > limits.PAIR_CPU_SECONDS:
        return f"and others of the same law together took more than {limits.PAIR_CPU_SECONDS:g} s of processor time"
    if piece.clock > limits.PAIR_CLOCK_SECONDS:
        return f"and others of the same law together took more than {limits.PAIR_CLOCK_SECONDS:g} s"
    if not suspects.should_read_stack(call, child.stack_due):
        return ""
    child.stack_due = child.stack_due.doubled()
    where = suspects.recognize(child.stack_dump.read(child.pid, child.job.root), call)
    return f"is in {where}, where an earlier call did not return" if where else ""


def _exceeded_limit(call: Time) -> str:
    """The limit that one call has exceeded, or an empty string."""
    if call.cpu > limits.CALL_CPU_SECONDS:
        return f"{limits.CALL_CPU_SECONDS:g} s of processor time"
    if call.clock > limits.CALL_CLOCK_SECONDS and call.cpu < limits.ASLEEP * call.clock:
        return f"{limits.CALL_CLOCK_SECONDS:g} s"
    return f"{limits.PAIR_CLOCK_SECONDS:g} s" if call.clock > limits.PAIR_CLOCK_SECONDS else ""


def _handle_dead_child(
    child: _Child, overdue: str, crashes: dict[tuple[str, str], int], send: Callable[[Event], None]
) -> Job | None:
    """Report the unfinished piece of a dead child and return the job to continue with, if any."""
    os.close(child.pipe)
    child.calls.close()
    child.stack_dump.close()
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    if child.ended and not overdue:
        return None
    job = child.job
    crashes[job.name] = crashes.get(job.name, 0) + 1
    reason = overdue or (f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}")
    unfinished = [piece for piece in job.pieces() if piece not in child.done]
    gives_up = child.piece == SMOKE_CHECK or crashes[job.name] >= MOST_CRASHES
    for piece in unfinished:
        if gives_up or piece == child.piece:
            was_running = child.piece in {piece, SMOKE_CHECK}
            why = (
                f"the call {reason}"
                if was_running
                else f"not called, after {MOST_CRASHES} crashes or hangs in this function"
            )
            send({"boundary": job.name[0], "setting": job.name[1]} | job.unfinished(piece, why))
    remaining = [piece for piece in unfinished if piece != child.piece]
    return None if gives_up or not remaining else job.without({*child.done, child.piece})
