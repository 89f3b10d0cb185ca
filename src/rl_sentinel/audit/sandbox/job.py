"""The interface of a job for a forked child."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Protocol, Self

Event = dict[str, Any]

#: Name of the smoke check in events.
SMOKE_CHECK = "smoke check"


class Job(Protocol):
    """Work in named pieces; each piece ends with one event, which has the name of the piece under ``"law"``."""

    @property
    def name(self) -> tuple[str, str]:
        """Boundary and setting."""
        ...

    @property
    def root(self) -> Path:
        """Root folder of the target's source code."""
        ...

    def pieces(self) -> list[str]:
        """Names of the pieces, in order."""
        ...

    def run(self, send: Callable[[Event], None]) -> None:
        """Send the result of each piece, and a start event before each piece that is run."""
        ...

    def without(self, done: Collection[str]) -> Self:
        """The job without the pieces that are done."""
        ...

    def unfinished(self, piece: str, reason: str) -> Event:
        """The event that reports a piece as unfinished or untried, with the reason."""
        ...
