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
    running = _RunningCalls(calls, concurrency)
    checked = time.monotonic()
    with _watchdog(2 * max((call.seconds for call in calls), default=0.0) + _GRACE) as rearm:
        while running.open:
            running.start()
            running.take()
            if time.monotonic() - checked >= _CHECK_EVERY:
                running.expire()
                rearm()
                checked = time.monotonic()
    return [running.results[n] for n in range(len(calls))]


class _RunningCalls:
    """Calls by their numbers: which wait, which have started, and the results.

    Attributes:
        plain: the calls that wait for a thread.
        coroutines: the calls that wait for the event loop.
        started: when a call has started.
        futures, tasks: those of calls in the event loop.
        results: the results so far.
    """

    def __init__(self, calls: Sequence[Call], concurrency: int) -> None:
        self.calls = calls
        self.plain = deque(n for n, call in enumerate(calls) if not _runs_in_loop(call))
        self.coroutines = deque(n for n, call in enumerate(calls) if _runs_in_loop(call))
        self.started: dict[int, float] = {}
        self.futures: dict[int, Future[Any]] = {}
        self.tasks: dict[int, asyncio.Task[Any] | None] = {}
        self.results: dict[int, Any] = {}
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._expired: set[int] = set()
        self._threads, self._slots = threading.Semaphore(concurrency), threading.Semaphore(concurrency)

    @property
    def open(self) -> bool:
        """Whether a result is missing."""
        return len(self.results) < len(self.calls)

    def start(self) -> None:
        """Start threads and coroutines for the calls that wait, as many as may run at one time."""
        for _ in range(len(self.plain)):
            if not self._threads.acquire(blocking=False):
                break
            threading.Thread(target=self._work, daemon=True, name="rl-sentinel-call").start()
        while self.coroutines and self._slots.acquire(blocking=False):
            self._start_coroutine(self.coroutines.popleft())

    def take(self) -> None:
        """Wait a moment for a result; the late result of an expired call is dropped."""
        try:
            number, result = self._done.get(timeout=_CHECK_EVERY)
        except queue.Empty:
            return
        self.results.setdefault(number, result)

    def expire(self) -> None:
        """Give up the calls that are past their time limit."""
        now, started = time.monotonic(), list(self.started)
        late = [n for n in started if n not in self.results and now - self.started[n] > self.calls[n].seconds]
        for number in [n for n in late if n not in self.futures]:
            self.results[number] = TimeoutError()
            self._expired.add(number)
            self._threads.release()  # another thread may start, since this one may never return
        in_loop = [n for n in late if n in self.futures]
        if in_loop:
            self._expire_coroutines(in_loop)

    def _work(self) -> None:
        """Call plain functions until none waits."""
        while True:
            try:
                number = self.plain.popleft()
            except IndexError:
                self._threads.release()
                return
            call = self.calls[number]
            self.started[number] = time.monotonic()
            try:
                result = call.function(**call.kwargs)
                if inspect.iscoroutine(result):
                    result = asyncio.run(result)
            except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end the thread
                result = error
            self._done.put((number, result))
            if number in self._expired:
                return

    def _start_coroutine(self, number: int) -> None:
        """Run an async call in the shared event loop."""
        call = self.calls[number]

        async def run() -> Any:  # noqa: ANN401 - the function's own
            self.started[number], self.tasks[number] = time.monotonic(), asyncio.current_task()
            return await call.function(**call.kwargs)

        def finish(future: "Future[Any]") -> None:
            if self.futures.get(number) is not future:
                return  # the call is made again elsewhere
            self._slots.release()
            self._done.put((number, TimeoutError() if future.cancelled() else future.exception() or future.result()))

        future = self.futures[number] = asyncio.run_coroutine_threadsafe(run(), _event_loop())
        future.add_done_callback(finish)

    def _expire_coroutines(self, late: Sequence[int]) -> None:
        """Give up late async calls. If one blocks the event loop, only that one: the others are made again."""
        loop, responds = _event_loop(), threading.Event()
        loop.call_soon_threadsafe(responds.set)
        blocked = not responds.wait(_RESPONDS_WITHIN)
        current = asyncio.current_task(loop) if blocked else None
        blocker = next((n for n, task in self.tasks.items() if current is not None and task is current), None)
        if blocker is not None and blocker not in late:
            return  # it has time left
        for number in late if blocker is None else [blocker]:
            self.results[number] = TimeoutError()
            self.futures[number].cancel()
        if not blocked:
            return
        if blocker is not None:
            _BLOCKING.add(inspect.unwrap(self.calls[blocker].function))
        _LOOPS.clear()
        for number in [n for n in self.futures if n not in self.results]:
            self.futures.pop(number).cancel()
            self.started.pop(number, None)
            self.coroutines.append(number)
            self._slots.release()
        waiting = list(self.coroutines)
        self.coroutines = deque(n for n in waiting if _runs_in_loop(self.calls[n]))
        self.plain.extend(n for n in waiting if not _runs_in_loop(self.calls[n]))


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
