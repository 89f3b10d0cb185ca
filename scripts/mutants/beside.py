"""Judges of a mutant besides the laws: the unit tests, and polgrad where it has the function."""

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
from rl_sentinel.audit.engine.call_trace import entered
from rl_sentinel.audit.sandbox.heartbeat import beat
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event

ROOT = Path(__file__).parents[2]
SIGNAL = ROOT / "src" / "rl_sentinel" / "signal"

#: Tests of all functions against the formulas; a mutant runs those of its module.
FORMULAS = ("test_formulas.py", "test_formulas_of_path.py", "test_formulas_of_sequences.py", "test_loss_formulas.py")

#: Tests of what is refused, which a mutant of a contract check runs.
CONTRACTS = ("test_refusals.py", "test_refused_calls.py", "test_wrong_kinds.py")

Send = Callable[[Event], None]

#: Gives the outcome of a mutant, or of the unchanged library for None.
Ask = Callable[[Mutant | None], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Beside:
    """A mutant (or none) before one judge: a job for a watched child, in one piece."""

    who: str
    mutant: Mutant | None
    ask: Ask

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
        return [SMOKE_CHECK]

    def without(self, done: Collection[str]) -> Self:  # noqa: ARG002 - one piece
        """The same: there is nothing to leave out."""
        return replace(self)

    def unfinished(self, piece: str, reason: str) -> Event:  # noqa: ARG002 - one piece
        """A call that never ends, or ends its process, counts as killed."""
        return {"event": "result", "outcome": "killed", "detail": f"the call {reason}"}

    def run(self, send: Send) -> None:
        """Send one event with the outcome."""
        if self.mutant is not None:
            plant(self.mutant)
        send({"event": "start", "law": SMOKE_CHECK})
        send({"event": "result", "detail": "", **self.ask(self.mutant)})


class _Beating:
    """Reports to the supervisor that tests go on."""

    def pytest_runtest_logstart(self) -> None:
        beat()


def by_tests(mutant: Mutant | None) -> dict[str, Any]:
    """The tests of the mutant's module and of its functions; those of all functions without a mutant."""
    folder = ROOT / "tests" / "signal"
    if mutant is None:
        return _tested([str(folder / name) for name in (*FORMULAS, *CONTRACTS)])
    path = Path(mutant.module)
    own = folder / path.parent / f"test_{path.stem}.py"
    if mutant.contract:
        return _tested([*([str(own)] if own.exists() else []), *(str(folder / n) for n in CONTRACTS)])
    words = ".".join(path.with_suffix("").parts)
    loss = f" or (loss_formulas and {path.stem})" if path.parent.name == "loss" else ""
    files = [str(folder / n) for n in FORMULAS]
    return _tested([*([str(own)] if own.exists() else []), *files, "-k", f"test_{path.stem}.py or {words}.{loss}"])


def _tested(arguments: list[str]) -> dict[str, Any]:
    """Plain assertions: rewriting them would import the library before the mutant is in its place."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", f"--rootdir={ROOT}"]
        found = pytest.main([*options, *arguments], [_Beating()])
    passed = found in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return {"outcome": "survived" if passed else "killed"}


def by_peer(reach: Mapping[str, Collection[str]]) -> Ask:
    """A judge by polgrad's functions; ``reach`` lists the library functions that each one runs."""

    def judged(mutant: Mutant | None) -> dict[str, Any]:
        if mutant is None:
            return {"outcome": "measured", "reach": dict(_reached())}
        place = f"{mutant.module}:{mutant.function}"
        own = [c for c in peer.comparisons() if place in reach[c.name]]
        for one in own:
            beat()
            try:
                one.run()
            except Exception as error:  # noqa: BLE001 - whatever a mutant raises
                return {"outcome": "killed", "detail": f"{one.name}: {type(error).__name__}"}
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
    """Of everything that the verdicts depend on."""
    total = hashlib.sha256(f"{peer.NAME} {peer.VERSION}".encode())
    folders = [package / "signal", ROOT / "tests" / "signal"]
    own = [Path(__file__).with_name(f"{n}.py") for n in ("beside", "operators", "peer", "planted", "sites")]
    for path in sorted([*own, *(p for folder in folders for p in folder.rglob("*.py"))]):
        total.update(path.read_bytes())
    return total.hexdigest()


def importable() -> None:
    """Make the modules of the tests importable, as pytest's configuration does."""
    sys.path[:0] = [str(ROOT / n) for n in ("tests", "tests/signal", "scripts") if str(ROOT / n) not in sys.path]
