"""Call functions concurrently, each with a time limit; a call that hangs or raises loses only its own result."""

import asyncio
import inspect
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: The most threads for functions that are not async, and the most async calls at one time, counts.
CONCURRENCY = 64

#: How often time limits are checked, and how long an event loop may take to respond before it counts as blocked, in s.
_CHECK_EVERY, _RESPONDS_WITHIN = 0.02, 0.5


class Call(NamedTuple):
    """A call: a function, plain or async, its keyword arguments, and its time limit in seconds."""

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]
    seconds: float


def call_all(calls: Sequence[Call], *, concurrency: int = CONCURRENCY) -> list[Any]:
    """The result of each call in order; the exception of a call that raised; ``TimeoutError`` after its time limit.

    A time limit starts when its call starts. A thread cannot be stopped: a plain function that never returns keeps
    its thread until the process ends. All async calls share one event loop, which stays between calls of this function.

    Example:
        >>> from rl_sentinel.train.rollout.concurrent_calls import Call, call_all
        >>> call_all([Call(int, {}, 1.0), Call(max, {}, 1.0)])[0]
        0
    """
    progress = _CallProgress(calls)
    plain = deque(n for n, call in enumerate(calls) if not inspect.iscoroutinefunction(call.function))
    coroutines = [n for n, call in enumerate(calls) if inspect.iscoroutinefunction(call.function)]
    for _ in range(min(concurrency, len(plain))):
        _start_worker(progress, plain)
    slots = threading.Semaphore(concurrency)
    waiting = deque(coroutines)
    checked = time.monotonic()
    while progress.open:
        while waiting and slots.acquire(blocking=False):
            _start_coroutine(progress, waiting.popleft(), slots)
        progress.take()
        if time.monotonic() - checked >= _CHECK_EVERY:
            for number in progress.expire():
                if number in progress.futures:
                    _abandon(progress, number, waiting, slots)
                else:
                    _start_worker(progress, plain)  # the thread of an expired call may never return
            checked = time.monotonic()
    return [progress.results[n] for n in range(len(calls))]


@dataclass(slots=True)
class _CallProgress:
    """Which calls have started, which are open, and the results."""

    calls: Sequence[Call]
    started: dict[int, float] = field(default_factory=dict)
    futures: dict[int, "Future[Any]"] = field(default_factory=dict)
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

    def expire(self) -> list[int]:
        """Give up the calls that are past their time limit, and return their numbers."""
        now, open_calls = time.monotonic(), [n for n in list(self.started) if n not in self.results]
        late = [n for n in open_calls if now - self.started[n] > self.calls[n].seconds]
        self.results |= {n: TimeoutError() for n in late}
        return late


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
        progress.started[number] = time.monotonic()
        return await call.function(**call.kwargs)

    def finish(future: "Future[Any]") -> None:
        if progress.futures.get(number) is not future:
            return  # the call is made again in another event loop
        slots.release()
        progress.done.put((number, TimeoutError() if future.cancelled() else future.exception() or future.result()))

    future = progress.futures[number] = asyncio.run_coroutine_threadsafe(run(), _event_loop())
    future.add_done_callback(finish)


def _abandon(progress: _CallProgress, number: int, waiting: deque[int], slots: threading.Semaphore) -> None:
    """Cancel an expired async call; if it blocks the event loop, run the other open calls in a new loop."""
    loop = _event_loop()
    progress.futures[number].cancel()
    responds = threading.Event()
    loop.call_soon_threadsafe(responds.set)
    if responds.wait(_RESPONDS_WITHIN):
        return
    _LOOPS.clear()
    for other in [n for n in progress.futures if n not in progress.results]:
        progress.futures.pop(other).cancel()
        progress.started.pop(other, None)
        waiting.append(other)
        slots.release()


#: The event loop of async calls, once it is needed.
_LOOPS: list[asyncio.AbstractEventLoop] = []


def _event_loop() -> asyncio.AbstractEventLoop:
    if not _LOOPS:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True, name="rl-sentinel-async").start()
        _LOOPS.append(loop)
    return _LOOPS[0]
