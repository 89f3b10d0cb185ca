"""Call functions concurrently, each with a time limit; a call that hangs or raises loses only its own result."""

import asyncio
import faulthandler
import inspect
import math
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: The most threads for functions that are not async, and the most async calls at one time, counts.
CONCURRENCY = 64

#: How often time limits are checked, and how long an event loop may take to respond before it counts as blocked, in s.
_CHECK_EVERY, _RESPONDS_WITHIN = 0.02, 0.5

#: How often the watchdog is armed again, and how long it waits beyond twice the longest time limit, in s.
_REARM_EVERY, _GRACE = 1.0, 10.0


class Call(NamedTuple):
    """A call: a function, plain or async, its keyword arguments, and its time limit in seconds."""

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    seconds: float


def call_all(calls: Sequence[Call], *, concurrency: int = CONCURRENCY) -> list[Any]:
    """The result of each call in order; the exception of a call that raised; ``TimeoutError`` after its time limit.

    A time limit starts when its call starts. A thread cannot be stopped: a plain function that never returns keeps
    its thread until the process ends. All async calls share one event loop, which stays between calls of this function;
    an async function that blocks it is called in threads from then on. A call that keeps Python's global lock, as a
    regular expression that backtracks, stops every thread: after twice the longest time limit and ten seconds the
    process ends with the traceback of all threads.

    Example:
        >>> from rl_sentinel.train.rollout.concurrent_calls import Call, call_all
        >>> call_all([Call(int, {}, 1.0), Call(max, {}, 1.0)])[0]
        0
    """
    progress = _CallProgress(calls)
    in_threads = {n for n, call in enumerate(calls) if not _runs_in_loop(call)}
    plain, waiting = deque(sorted(in_threads)), deque(n for n in range(len(calls)) if n not in in_threads)
    slots = threading.Semaphore(concurrency)
    checked = time.monotonic()
    with _watchdog(2 * max((call.seconds for call in calls), default=0.0) + _GRACE) as rearm:
        for _ in range(min(concurrency, len(plain))):
            _start_worker(progress, plain)
        while progress.open:
            while waiting and slots.acquire(blocking=False):
                _start_coroutine(progress, waiting.popleft(), slots)
            progress.take()
            if time.monotonic() - checked < _CHECK_EVERY:
                continue
            late = progress.late()
            for number in [n for n in late if n not in progress.futures]:
                progress.results[number] = TimeoutError()
                _start_worker(progress, plain)  # the thread of an expired call may never return
            if any(n in progress.futures for n in late):
                _expire_coroutines(progress, [n for n in late if n in progress.futures], waiting, slots)
                moved = [n for n in waiting if not _runs_in_loop(calls[n])]
                waiting = deque(n for n in waiting if n not in moved)
                plain.extend(moved)
                for _ in moved[:concurrency]:
                    _start_worker(progress, plain)
            rearm()
            checked = time.monotonic()
    return [progress.results[n] for n in range(len(calls))]


@dataclass(slots=True)
class _CallProgress:
    """Which calls have started, which are open, and the results."""

    calls: Sequence[Call]
    started: dict[int, float] = field(default_factory=dict)
    futures: dict[int, "Future[Any]"] = field(default_factory=dict)
    tasks: dict[int, "asyncio.Task[Any] | None"] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    done: "queue.SimpleQueue[tuple[int, Any]]" = field(default_factory=queue.SimpleQueue)

    @property
    def open(self) -> bool:
        """Whether a result is missing."""
        return len(self.results) < len(self.calls)

    def take(self) -> None:
        """Wait a moment for a result; the late result of an expired call is dropped."""
        try:
            number, result = self.done.get(timeout=_CHECK_EVERY)
        except queue.Empty:
            return
        self.results.setdefault(number, result)

    def late(self) -> list[int]:
        """The numbers of the open calls that are past their time limit."""
        now, open_calls = time.monotonic(), [n for n in list(self.started) if n not in self.results]
        return [n for n in open_calls if now - self.started[n] > self.calls[n].seconds]


def _start_worker(progress: _CallProgress, plain: deque[int]) -> None:
    """Start a thread that calls functions until the queue is empty."""

    def work() -> None:
        while True:
            try:
                number = plain.popleft()
            except IndexError:
                return
            call = progress.calls[number]
            progress.started[number] = time.monotonic()
            try:
                result = call.function(**call.kwargs)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
            except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end the thread
                result = error
            progress.done.put((number, result))
            if number in progress.results:
                return  # expired, and another thread was started for it

    threading.Thread(target=work, daemon=True, name="rl-sentinel-call").start()


def _start_coroutine(progress: _CallProgress, number: int, slots: threading.Semaphore) -> None:
    """Run an async call in the shared event loop."""
    call = progress.calls[number]

    async def run() -> Any:  # noqa: ANN401 - the function's own
        progress.started[number], progress.tasks[number] = time.monotonic(), asyncio.current_task()
        return await call.function(**call.kwargs)

    def finish(future: "Future[Any]") -> None:
        if progress.futures.get(number) is not future:
            return  # the call is made again in another event loop
        slots.release()
        progress.done.put((number, TimeoutError() if future.cancelled() else future.exception() or future.result()))

    future = progress.futures[number] = asyncio.run_coroutine_threadsafe(run(), _event_loop())
    future.add_done_callback(finish)


def _expire_coroutines(
    progress: _CallProgress, late: Sequence[int], waiting: deque[int], slots: threading.Semaphore
) -> None:
    """Give up late async calls. If one of them blocks the event loop, only that one: run the others in a new loop."""
    loop, responds = _event_loop(), threading.Event()
    loop.call_soon_threadsafe(responds.set)
    blocked = not responds.wait(_RESPONDS_WITHIN)
    running = asyncio.current_task(loop) if blocked else None
    blocker = next((n for n, task in progress.tasks.items() if task is running and running is not None), None)
    if blocker is not None and blocker not in late:
        return  # it has time left
    for number in late if blocker is None else [blocker]:
        progress.results[number] = TimeoutError()
        progress.futures[number].cancel()
    if not blocked:
        return
    if blocker is not None:
        _BLOCKING.add(inspect.unwrap(progress.calls[blocker].function))
    _LOOPS.clear()
    for other in [n for n in progress.futures if n not in progress.results]:
        progress.futures.pop(other).cancel()
        progress.started.pop(other, None)
        waiting.append(other)
        slots.release()


def _runs_in_loop(call: Call) -> bool:
    """Whether a call is async, and of a function that has not blocked an event loop yet."""
    return inspect.iscoroutinefunction(call.function) and inspect.unwrap(call.function) not in _BLOCKING


@contextmanager
def _watchdog(seconds: float) -> Iterator[Callable[[], None]]:
    """End the process with a traceback if the yielded function is not called for so long.

    Only a thread outside Python can do this while a call keeps the global lock: ``faulthandler`` has one.
    """
    file, armed = sys.__stderr__, -math.inf

    def rearm() -> None:
        nonlocal armed
        if file is not None and time.monotonic() - armed >= _REARM_EVERY:
            armed = time.monotonic()
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)

    rearm()
    try:
        yield rearm
    finally:
        faulthandler.cancel_dump_traceback_later()


#: The async functions that have blocked an event loop.
_BLOCKING: set[Callable[..., Any]] = set()

#: The event loop of async calls, once it is needed.
_LOOPS: list[asyncio.AbstractEventLoop] = []


def _event_loop() -> asyncio.AbstractEventLoop:
    if not _LOOPS:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True, name="rl-sentinel-async").start()
        _LOOPS.append(loop)
    return _LOOPS[0]
