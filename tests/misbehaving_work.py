"""Jobs that hang, crash or run long, for tests of the supervisor."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rl_sentinel.audit.sandbox import heartbeat
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event
from rl_sentinel.audit.sandbox.supervisor import run_all

HERE = Path(__file__).parent


@dataclass(frozen=True)
class MisbehavingWork:
    """Pieces that each call one function; ``smoke_check`` is called before them."""

    path: str
    calls: dict[str, Callable[[], Any]]
    smoke_check: Callable[[], Any] = field(default=lambda: None)
    root: Path = HERE

    @property
    def name(self) -> tuple[str, str]:
        return self.path, "default"

    def pieces(self) -> list[str]:
        return list(self.calls)

    def without(self, done: Collection[str]) -> Self:
        return replace(self, calls={k: v for k, v in self.calls.items() if k not in done})

    def unfinished(self, piece: str, reason: str) -> Event:
        return {"event": "lost", "law": piece, "reason": reason}

    def run(self, send: Callable[[Event], None]) -> None:
        """Send a heartbeat before each call, as a unit does."""
        send({"event": "start", "law": SMOKE_CHECK})
        heartbeat.beat()
        self.smoke_check()
        for piece, call in self.calls.items():
            send({"event": "start", "law": piece})
            heartbeat.beat()
            call()
            send({"event": "did", "law": piece})


def loop() -> None:
    while True:
        pass


def enters_loop() -> None:
    loop()


def wait() -> None:
    time.sleep(3600)


def slow() -> None:
    end = time.process_time() + 1.0
    while time.process_time() < end:
        pass


def outcomes(work: Sequence[MisbehavingWork], jobs: int = 1) -> dict[tuple[str, str], str]:
    """Return the outcome of each piece: ``did``, or the reason of the failure."""
    events: list[Event] = []
    run_all(work, jobs, events.append)
    return {(e["boundary"], e["law"]): str(e.get("reason", e["event"])) for e in events}
