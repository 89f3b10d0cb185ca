"""Times per phase of a step, also of phases that run in the sampling thread."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

#: The phases of a step that are timed, each in seconds.
PHASES = ("sampling", "rewards", "reference", "update", "publish", "evaluation", "checkpoint")

#: Times a block of code as one phase.
Measure = Callable[[str], AbstractContextManager[None]]


def unmeasured(_phase: str) -> AbstractContextManager[None]:
    """A ``Measure`` that times nothing."""
    return nullcontext()


class Stopwatch:
    """Adds up the seconds of each phase of each step.

    Example:
        >>> from rl_sentinel.train.run.stopwatch import Stopwatch
        >>> stopwatch = Stopwatch()
        >>> with stopwatch.measure(3)("update"):
        ...     pass
        >>> times = stopwatch.take(3)
        >>> times["update"] > 0.0, times["rewards"], stopwatch.take(3)["update"]
        (True, 0.0, 0.0)
    """

    def __init__(self) -> None:
        """Start without any measured time."""
        self._lock = threading.Lock()
        self._seconds: dict[tuple[int, str], float] = defaultdict(float)

    def measure(self, step: int) -> Measure:
        """A function that times the phases of a step, counted from 0; they may run in any thread."""

        @contextmanager
        def phase(name: str) -> Iterator[None]:
            start = time.perf_counter()
            try:
                yield
            finally:
                with self._lock:
                    self._seconds[step, name] += time.perf_counter() - start

        return phase

    def timing(self, step: int, **more: float) -> dict[str, float]:
        """The numbers for a line of ``timing.jsonl``, rounded: ``more``, and the seconds of each phase of the step."""
        times = {f"{phase}_seconds": seconds for phase, seconds in self.take(step).items()}
        return {name: round(value, 6) for name, value in (more | times).items()}

    def take(self, step: int) -> dict[str, float]:
        """The seconds of each phase of a step, 0 for a phase that did not run; a second call returns zeros."""
        with self._lock:
            return {name: self._seconds.pop((step, name), 0.0) for name in PHASES}
