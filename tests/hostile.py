"""Work that misbehaves, for tests of the watch over children."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rl_sentinel.audit.sandbox import heartbeat as pulse
from rl_sentinel.audit.sandbox.job import CANARY, Event
from rl_sentinel.audit.sandbox.supervisor import run_all

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Hostile:
    """Pieces that each call one function; ``canary`` is called before them."""

    path: str
    calls: dict[str, Callable[[], Any]]
    canary: Callable[[], Any] = field(default=lambda: None)
    root: Path = HERE

    @property
    def name(self) -> tuple[str, str]:
        """Path and setting."""
        return self.path, "default"

    def pieces(self) -> list[str]:
        """Names of the calls."""
        return list(self.calls)

    def without(self, done: Collection[str]) -> Self:
        """The same with some calls left out."""
        return replace(self, calls={k: v for k, v in self.calls.items() if k not in done})

    def lost(self, piece: str, reason: str) -> Event:
        """An event that tells why."""
        return {"event": "lost", "law": piece, "reason": reason}

    def run(self, send: Callable[[Event], None]) -> None:
        """Beat before each call, as an asker does."""
        send({"event": "start", "law": CANARY})
        pulse.beat()
        self.canary()
        for piece, call in self.calls.items():
            send({"event": "start", "law": piece})
            pulse.beat()
            call()
            send({"event": "did", "law": piece})


def loop() -> None:
    """Never come back, and use the processor."""
    while True:
        pass


def enters_loop() -> None:
    """Hang in another function."""
    loop()


def wait() -> None:
    """Never come back, and use nothing."""
    time.sleep(3600)


def slow() -> None:
    """Come back after a second of processor time."""
    end = time.process_time() + 1.0
    while time.process_time() < end:
        pass


def outcomes(work: Sequence[Hostile], jobs: int = 1) -> dict[tuple[str, str], str]:
    """What became of each piece: ``did``, or the reason why not."""
    events: list[Event] = []
    run_all(work, jobs, events.append)
    return {(e["boundary"], e["law"]): str(e.get("reason", e["event"])) for e in events}
