"""Record the code of a target on which verdicts depend: functions that were entered, or read as text."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rl_sentinel.adapters import loading
from rl_sentinel.adapters.source_reads import SourceReads
from rl_sentinel.audit.engine.code_entries import CodeEntries, is_supported
from rl_sentinel.audit.engine.description import description_digest
from rl_sentinel.audit.sandbox.job import Event
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.boundary import Boundary


class CodeUse:
    """Record the code that a worker uses while it loads a target, and later the code that each of its children uses."""

    def __init__(self, root: Path) -> None:
        """Start to record."""
        self.entries, self.source = CodeEntries(root), SourceReads(root)
        self.entries.install()
        self.source.install()

    @classmethod
    def for_request(cls, request: Request) -> "CodeUse | None":
        """A recorder, if the request asks for this record and this interpreter can count calls; otherwise None."""
        return cls(Path(request.root)) if request.records_code and is_supported() else None

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Context in which adapters describe boundaries; the descriptions already include what adapters read."""
        self.source.binding = True
        try:
            yield
        finally:
            self.source.binding = False

    def loaded(self) -> Event:
        """Dependencies of all verdicts: functions that were entered or read until now, and the loaded modules."""
        entered, read = self.entries.mark_loaded(), sorted(self.source.reads)
        return {"event": "loaded-code", "functions": entered, "reads": read, "modules": self.modules()}

    def modules(self) -> list[str]:
        """The modules of the target that were run, and the packages with a replacement."""
        return [*self.entries.modules(), *(f"{name}: {kind}" for name, kind in sorted(loading.used.items()))]

    def begin(self) -> None:
        """Start the record of a child process."""
        self.entries.mark_forked()
        self.source.reads.clear()

    def event(self) -> Event:
        """The code that this child entered and read; ``complete`` is as in ``CodeEntries.is_complete``."""
        used = {"functions": self.entries.entered_since(), "reads": sorted(self.source.reads)}
        return {"event": "used-code", **used, "complete": self.entries.is_complete()}

    def described(self, boundary: Boundary, setting: str, by_path: Mapping[str, Boundary]) -> Event:
        """The event with the digest of a boundary's description."""
        digest = description_digest(boundary, by_path)
        return {"event": "described", "boundary": boundary.path, "setting": setting, "digest": digest}
