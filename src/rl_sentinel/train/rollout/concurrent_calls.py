"""Call functions concurrently, each with a time limit."""

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
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

#: The most threads for functions that are not async, and the most async calls at one time, counts.
CONCURRENCY = 64

#: Seconds between two looks at the calls, and how much of a longer pause counts: then this process did not run.
_CHECK_EVERY, _LONGEST_PAUSE = 0.02, 0.1

#: Looks in a row without an answer after which an event loop counts as blocked: at least 0.3 s.
_UNANSWERED = 15

#: How often an event loop is replaced without a known cause before the calls in it are given up.
_REPLACEMENTS = 2

#: How often the watchdog is armed again, and how long it waits beyond twice the longest time limit, in s.
_REARM_EVERY, _GRACE = 1.0, 10.0


#: Why calls are given up before their time limit.
_BLOCKED = "other code blocked its event loop several times, so write the function without async"


class TimeLimitError(TimeoutError):
    """The time limit of a call passed; with a text, the call was given up earlier, for this reason."""


class Call(NamedTuple):
    """A call: a function, plain or async, its keyword arguments, and its time limit in seconds."""

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    seconds: float


def call_all(calls: Sequence[Call], *, concurrency: int = CONCURRENCY) -> list[Any]:
    """The result of each call in order; the exception of a call that raised; ``TimeLimitError`` after its limit.

    A time limit starts when its call starts. A thread cannot be stopped: a plain function that never returns keeps its
    thread until the process ends.

    Async calls share one event loop, which stays between calls of this function. If a call blocks the loop, the other
    unfinished calls are made again in a new loop; the function of the blocking call runs in threads from then on. If
    blocked loops have no known cause, the unfinished calls soon get a ``TimeLimitError``.

    A call that keeps Python's global lock, such as a regular expression that backtracks, stops every thread. After
    twice the longest time limit and ten seconds, the process then ends with the traceback of all threads.

    Example:
        >>> from rl_sentinel.train.rollout.concurrent_calls import Call, call_all
        >>> call_all([Call(int, {}, 1.0), Call(max, {}, 1.0)])[0]
        0
    """
    running = _RunningCalls(calls, concurrency)
    with _watchdog(2 * max((call.seconds for call in calls), default=0.0) + _GRACE) as rearm:
        while running.open:
            running.start()
            running.take()
            running.check()
            rearm()
    return [running.results[n] for n in range(len(calls))]


class _RunningCalls:
    """The state of the calls, by index: the calls that wait, the calls that have started, and the results.

    Attributes:
        plain: the calls that wait for a thread.
        coroutines: the calls that wait for the event loop.
        started: the value of ``clock`` at the start of each call.
        clock: seconds in which this process ran, so that a pause of the whole process costs no call its time.
        futures, tasks: the futures and tasks of the calls in the event loop.
        results: the results so far.
    """

    def __init__(self, calls: Sequence[Call], concurrency: int) -> None:
        self.calls = calls
        self.plain = deque(n for n, call in enumerate(calls) if not _runs_in_loop(call))
        self.coroutines = deque(n for n, call in enumerate(calls) if _runs_in_loop(call))
        self.started: dict[int, float] = {}
        self.futures: dict[int, Future[None]] = {}
        self.tasks: dict[int, asyncio.Task[Any] | None] = {}
        self.results: dict[int, Any] = {}
        self.clock, self._checked = 0.0, time.monotonic()
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._expired: set[int] = set()
        self._current: dict[int, object] = {}  # of a call in the event loop: the latest time that it was made
        self._threads, self._slots = threading.Semaphore(concurrency), threading.Semaphore(concurrency)
        self._loop = _event_loop() if self.coroutines else None
        self._answered, self._unanswered, self._replaced = threading.Event(), 0, 0
        self._answered.set()

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
        """Wait briefly for a result, then take all finished results; the late result of an expired call is dropped."""
        with suppress(queue.Empty):
            self._take(timeout=_CHECK_EVERY)
            while True:
                self._take(timeout=0)

    def _take(self, timeout: float) -> None:
        number, result = self._done.get(block=timeout > 0, timeout=timeout or None)
        self.results.setdefault(number, result)

    def check(self) -> None:
        """At most every ``_CHECK_EVERY`` seconds, give up calls past their time limit, and check the event loop."""
        passed = time.monotonic() - self._checked
        if passed < _CHECK_EVERY:
            return
        self.clock, self._checked = self.clock + min(passed, _LONGEST_PAUSE), self._checked + passed
        for number, start in list(self.started.items()):
            if number not in self.results and self.clock - start > self.calls[number].seconds:
                self._give_up(number)
        if self._loop is not None and any(n not in self.results for n in self.futures):
            self._look_after(self._loop)

    def _give_up(self, number: int, *reason: str) -> None:
        self.results[number] = TimeLimitError(*reason)
        if number in self.futures:
            self.futures[number].cancel()
        else:
            self._expired.add(number)
            self._threads.release()  # another thread may start, since this one may never return

    def _work(self) -> None:
        """In a thread, make the calls that wait for one, until none is left or the current one has expired."""
        while True:
            try:
                number = self.plain.popleft()
            except IndexError:
                self._threads.release()
                return
            call = self.calls[number]
            self.started[number] = self.clock
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
        """Run an async call in the event loop."""
        call, current = self.calls[number], object()
        self._current[number] = current

        async def run() -> None:
            if self._current.get(number) is not current:
                return  # the call is made again elsewhere
            self.started[number], self.tasks[number] = self.clock, asyncio.current_task()
            try:
                result = await call.function(**call.kwargs)
            except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end the event loop
                result = error
            if self._current.get(number) is current:
                self._done.put((number, result))

        def finish(future: "Future[None]") -> None:
            if self.futures.get(number) is future:
                self._slots.release()

        assert self._loop is not None  # noqa: S101 - made for the first coroutine
        future = self.futures[number] = asyncio.run_coroutine_threadsafe(run(), self._loop)
        future.add_done_callback(finish)

    def _look_after(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask the event loop for a response; replace the loop if it has not responded for a while."""
        if self._answered.is_set():
            self._answered.clear()
            self._unanswered = 0
            loop.call_soon_threadsafe(self._answered.set)
            return
        self._unanswered += 1
        if self._unanswered < _UNANSWERED:
            return
        current = asyncio.current_task(loop)
        blocker = next((n for n, task in self.tasks.items() if current is not None and task is current), None)
        if blocker is not None:
            _BLOCKING.add(inspect.unwrap(self.calls[blocker].function))
        else:
            self._replaced += 1
        self._replace_loop(loop, blocker)

    def _replace_loop(self, blocked: asyncio.AbstractEventLoop, blocker: int | None) -> None:
        """Replace a blocked event loop; queue its unfinished calls again, except the call that blocks it.

        After too many replacements without a known cause, the unfinished calls are given up.
        """
        if blocked in _LOOPS:
            _LOOPS.remove(blocked)
        self._loop, self._unanswered, self._answered = _event_loop(), 0, threading.Event()
        self._answered.set()
        for number in [n for n in self.futures if n not in self.results and n != blocker]:
            if self._replaced > _REPLACEMENTS:
                self._give_up(number, _BLOCKED)
                continue
            self._current.pop(number)
            self.futures.pop(number).cancel()
            self.started.pop(number, None)
            self.tasks.pop(number, None)
            self._slots.release()
            in_loop = _runs_in_loop(self.calls[number])
            (self.coroutines if in_loop else self.plain).append(number)
        waiting = list(self.coroutines)
        self.coroutines = deque(n for n in waiting if _runs_in_loop(self.calls[n]))
        self.plain.extend(n for n in waiting if not _runs_in_loop(self.calls[n]))


def _runs_in_loop(call: Call) -> bool:
    """Whether a call is async, and of a function that has not blocked an event loop yet."""
    return inspect.iscoroutinefunction(call.function) and inspect.unwrap(call.function) not in _BLOCKING


@contextmanager
def _watchdog(seconds: float) -> Iterator[Callable[[], None]]:
    """End the process with a traceback if the yielded function is not called for ``seconds`` seconds.

    While a call keeps the global lock, only a thread outside of Python can do this; ``faulthandler`` has such a thread.
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
