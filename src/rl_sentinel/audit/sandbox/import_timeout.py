"""Interrupt an import that does not end; later imports of that module fail at once."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import FrameType

from rl_sentinel.audit.sandbox.limits import ASLEEP

#: Most seconds between the starts of two imports: processor time and wall-clock time.
CPU_SECONDS, CLOCK_SECONDS = 20.0, 90.0

#: Processor time of all loading, in seconds, after which the kernel ends a process that cannot be interrupted.
MOST_CPU_SECONDS = 600


@contextmanager
def import_time_limit(cpu: float = CPU_SECONDS, clock: float = CLOCK_SECONDS) -> Iterator[None]:
    """Interrupt the running code when no import starts within a time.

    The time is ``cpu`` seconds of processor time, or ``clock`` seconds with almost no processor time.

    The module whose body was running is refused from then on, so that each of its importers fails at once. Each import
    that starts resets the limits, so that a slow machine can load a large target.

    Raises:
        TimeoutError: inside the running code; the message names the module and the time.
    """
    watch = _Watch(cpu, clock)
    sys.meta_path.insert(0, watch)
    before = {s: signal.signal(s, watch.interrupt) for s in (signal.SIGPROF, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    most = int(used) + MOST_CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    watch.arm()
    try:
        yield
    finally:
        watch.arm(cpu=0, clock=0)
        for number, handler in before.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        sys.meta_path.remove(watch)


class _Watch(MetaPathFinder):
    """An import hook that notices the start of every import, and refuses modules that hung."""

    def __init__(self, cpu: float, clock: float) -> None:
        self.cpu, self.clock = cpu, clock
        self.refused: dict[str, str] = {}
        self.used = 0.0

    def arm(self, cpu: float | None = None, clock: float | None = None) -> None:
        self.used = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, self.cpu if cpu is None else cpu)
        signal.setitimer(signal.ITIMER_REAL, self.clock if clock is None else clock)

    def find_spec(self, fullname: str, _path: object = None, _target: object = None) -> None:
        self.arm()
        if fullname in self.refused:
            raise TimeoutError(self.refused[fullname])

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM and time.process_time() - self.used > ASLEEP * self.clock:
            signal.setitimer(signal.ITIMER_REAL, self.clock)  # slowed down by other processes, not sleeping
            return
        self.arm()
        limit = (
            f"{self.cpu:g} s of processor time"
            if number == signal.SIGPROF
            else f"{self.clock:g} s with almost no processor time"
        )
        module = _importing(frame)
        message = (
            f"import of {module or 'the target'} was stopped because no other import started within {limit}: keep "
            "long or blocking work out of a module's top level"
        )
        if module:
            self.refused[module] = message
        raise TimeoutError(message)


def _importing(frame: FrameType | None) -> str:
    """The module whose body is running, or an empty string."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__spec__") is not None:
            name = str(frame.f_globals["__name__"])
            return "" if name == "__main__" else name
        frame = frame.f_back
    return ""
