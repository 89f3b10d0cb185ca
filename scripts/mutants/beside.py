"""What others than the laws see of a mutant: the tests of its module, and polgrad where it has the function."""

import contextlib
import hashlib
import io
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from mutants import peer
from mutants.planted import plant
from mutants.sites import Mutant
from rl_sentinel.audit.worker.job import CANARY, Event
from rl_sentinel.audit.worker.pulse import beat
from rl_sentinel.audit.worker.tracing import entered

ROOT = Path(__file__).parents[2]
SIGNAL = ROOT / "src" / "rl_sentinel" / "signal"

#: Oracles of all functions, of which a mutant is asked those of its module.
ORACLES = ("test_oracle.py", "test_oracle_draws.py", "test_oracle_gradients.py")

Send = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Beside:
    """A mutant (or none) before one of the two: a job for a watched child, in one piece."""

    who: str
    mutant: Mutant | None
    ask: Callable[[Mutant | None], dict[str, Any]]

    @property
    def name(self) -> tuple[str, str]:
        """The mutant's name, in the place of a boundary's."""
        return (self.mutant.name if self.mutant else "baseline"), ""

    @property
    def root(self) -> Path:
        """The tree of the library."""
        return ROOT / "src"

    def pieces(self) -> list[str]:
        """One piece."""
        return [CANARY]

    def without(self, done: Collection[str]) -> Self:  # noqa: ARG002 - one piece
        """The same: there is nothing to leave out."""
        return replace(self)

    def lost(self, piece: str, reason: str) -> Event:  # noqa: ARG002 - one piece
        """A call that never ends, or ends its process, is seen by whoever made it."""
        return {"event": "result", "outcome": "killed", "detail": f"the call {reason}"}

    def run(self, send: Send) -> None:
        """Send one event with what was seen."""
        if self.mutant is not None:
            plant(self.mutant)
        send({"event": "start", "law": CANARY})
        send({"event": "result", "detail": "", **self.ask(self.mutant)})


class _Beating:
    """Tells who watches that tests go on."""

    def pytest_runtest_logstart(self) -> None:
        beat()


def by_tests(mutant: Mutant | None) -> dict[str, Any]:
    """The tests of the mutant's module, and of its functions against the oracle; without one, of all modules."""
    folder = ROOT / "tests" / "signal"
    if mutant is None:
        return _tested([str(folder)])
    path = Path(mutant.module)
    own = folder / path.parent / f"test_{path.stem}.py"
    words = ".".join(path.with_suffix("").parts)
    loss = f" or (gradients and {path.stem})" if path.parent.name == "loss" else ""
    files = [str(folder / n) for n in ORACLES]
    return _tested([*([str(own)] if own.exists() else []), *files, "-k", f"test_{path.stem}.py or {words}.{loss}"])


def _tested(arguments: list[str]) -> dict[str, Any]:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        found = pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", *arguments], [_Beating()])
    passed = found in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return {"outcome": "survived" if passed else "killed"}


def by_peer(reach: Mapping[str, Collection[str]]) -> Callable[[Mutant | None], dict[str, Any]]:
    """A judge by polgrad's functions, of which ``reach`` says what of the library each runs."""

    def judged(mutant: Mutant | None) -> dict[str, Any]:
        if mutant is None:
            return {"outcome": "measured", "reach": dict(_reached())}
        place = f"{mutant.module}:{mutant.function}"
        own = [c for c in peer.comparisons() if place in reach[c.name]]
        for one in own:
            beat()
            try:
                one.run()
            except Exception as seen:  # noqa: BLE001 - whatever a mutant does is seen
                return {"outcome": "killed", "detail": f"{one.name}: {type(seen).__name__}"}
        return {"outcome": "survived" if own else "no such function"}

    return judged


def _reached() -> Iterator[tuple[str, list[str]]]:
    for one in peer.comparisons():
        beat()
        with entered(SIGNAL) as names:
            one.run()
        inside = {f"{n.split(':')[0]}:{n.rsplit(':', maxsplit=1)[-1].partition('.<locals>')[0]}" for n in names}
        yield one.name, sorted(inside)


def digest(package: Path) -> str:
    """Of all that the two verdicts depend on."""
    total = hashlib.sha256(f"{peer.NAME} {peer.VERSION}".encode())
    folders = [package / "signal", ROOT / "tests" / "signal"]
    own = [Path(__file__).with_name(f"{n}.py") for n in ("beside", "operators", "peer", "planted", "sites")]
    for path in sorted([*own, *(p for folder in folders for p in folder.rglob("*.py"))]):
        total.update(path.read_bytes())
    return total.hexdigest()


def importable() -> None:
    """The tests' own modules, as pytest's configuration has them, and polgrad."""
    sys.path[:0] = [str(ROOT / n) for n in ("tests", "tests/signal", "scripts") if str(ROOT / n) not in sys.path]
    peer.fetch()
