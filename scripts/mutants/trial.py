"""Audit one mutant: replace its module in a forked child, then run the laws on its boundaries."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mutants.planted import plant
from mutants.sites import Mutant
from rl_sentinel.adapters.library import FRAMEWORK
from rl_sentinel.adapters.library.arguments import SIGNAL
from rl_sentinel.adapters.loading import forbid_stand_ins
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.call_trace import entered
from rl_sentinel.audit.engine.executor import Asker
from rl_sentinel.audit.engine.judge import search, smoke_check
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event
from rl_sentinel.core.batch import COLUMNS
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.errors import NotApplicable, Refused
from rl_sentinel.core.law import Law
from rl_sentinel.search.case_selection import FIXED_SEED
from rl_sentinel.search.random_cases import random_cases
from rl_sentinel.search.small_cases import small_cases

#: All small cases and this many random ones, from this seed.
SEED, BUDGET = 0, 16

#: Laws that recompute a quantity from its definition; all others are relations between calls.
RECOMPUTED = ("MET001", "PLC004", "REF001")

Pair = tuple[str, str]
Send = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The unchanged library: the functions that each boundary enters, and how many cases it refuses."""

    entered: Mapping[Pair, frozenset[str]]
    refused: Mapping[Pair, int]

    def reach(self, mutant: Mutant) -> frozenset[Pair]:
        """The boundaries and settings under which the mutated function runs."""
        place = f"{mutant.module}:{mutant.function}"
        return frozenset(pair for pair, names in self.entered.items() if place in names)

    def narrow(self, pair: Pair) -> tuple[int, Pair]:
        """Sort key: boundaries that run the least of the library first, where a fault shows best."""
        return len(self.entered[pair]), pair


@dataclass(slots=True)
class Trial:
    """A mutant (or none, for the baseline) before the laws: a job for a watched child, in one piece."""

    target: Target
    laws: Sequence[Law]
    baseline: Baseline | None = None
    mutant: Mutant | None = None

    @property
    def name(self) -> tuple[str, str]:
        """The mutant's name, in the place of a boundary's."""
        return (self.mutant.name if self.mutant else "baseline"), ""

    @property
    def root(self) -> Path:
        """The library's tree."""
        return self.target.root

    def pieces(self) -> list[str]:
        """One piece: a mutant that ends its child is loud."""
        return [SMOKE_CHECK]

    def without(self, done: Collection[str]) -> Self:  # noqa: ARG002 - one piece
        """The same trial: there is nothing to leave out."""
        return self

    def unfinished(self, piece: str, reason: str) -> Event:  # noqa: ARG002 - one piece
        """The result of a child that died."""
        return {"event": "result", "outcome": "loud", "law": "", "detail": f"the call {reason}"}

    def run(self, send: Send) -> None:
        """Send one event with the outcome."""
        if self.mutant is None or self.baseline is None:
            self._measured(send)
            return
        plant(self.mutant)
        send({"event": "result", **self._judged(send, self.baseline, self.baseline.reach(self.mutant))})

    def _boundaries(self) -> Iterator[tuple[Boundary, str]]:
        for found in FRAMEWORK.boundaries(self.target):
            if not isinstance(found, Boundary):
                raise TypeError(f"{found.path} is unbound: {found.reason}")
            for setting in found.settings:
                yield found, setting

    def _judged(self, send: Send, baseline: Baseline, reach: frozenset[Pair]) -> dict[str, Any]:
        """Relations between calls first, and of each kind of law the boundaries that run the least besides."""
        try:
            every = {(b.path, setting): b for b, setting in self._boundaries()}
        except Exception as error:  # noqa: BLE001 - whatever a mutant does at import is loud
            return {"outcome": "loud", "law": "", "detail": f"{type(error).__name__}: {error}"}
        others = {b.path: b for b in every.values()}
        asked = {pair: Asker(every[pair], others) for pair in sorted(reach & set(every), key=baseline.narrow)}
        why, asked_once = dict[Pair, str](), set[tuple[str, int]]()
        loud = ""
        for laws in self._kinds():
            for (path, setting), ask in asked.items():
                wanted = [law for law in laws if ask.boundary.stage in law.stages and not law.applies(ask.boundary)]
                once = id(ask.boundary)  # some laws ask all of its settings at once
                wanted = [law for law in wanted if (law.code, once) not in asked_once]
                if wanted and (path, setting) not in why:
                    why[path, setting] = _fails(ask, setting, baseline.refused[path, setting])
                    loud = loud or why[path, setting]
                for law in wanted if not why.get((path, setting)) else ():
                    send({"event": "start", "law": SMOKE_CHECK})
                    asked_once |= {(law.code, once)} if law.at_once else set()
                    try:
                        with forbid_stand_ins():
                            judgement = search(law, ask, setting, seed=SEED, budget=BUDGET)
                    except Exception as error:  # noqa: BLE001 - a pair that errs is no verdict of a law
                        loud = loud or f"{law.code}: {type(error).__name__}: {error}"
                        continue
                    if judgement.found is not None:
                        where = f"{path.removeprefix(f'{SIGNAL}.')} [{setting}]"
                        return {"outcome": "killed", "law": law.code, "detail": where}
        return {"outcome": "loud" if loud else "survived", "law": "", "detail": loud}

    def _kinds(self) -> tuple[list[Law], list[Law]]:
        """The laws that relate calls, and those that recompute, in the order given."""
        last = [law for law in self.laws if law.code in RECOMPUTED]
        return [law for law in self.laws if law.code not in RECOMPUTED], last

    def _measured(self, send: Send) -> None:
        for boundary, setting in self._boundaries():
            send({"event": "start", "law": SMOKE_CHECK})
            ask = Asker(boundary, {})
            with entered(self.target.root) as names, forbid_stand_ins():
                smoke_check(ask, setting)
                refused = _refused(ask, setting)
                _differentiated(ask, setting)
            inside = {f"{n.split(':')[0].removeprefix('rl_sentinel/signal/')}:{_outer(n)}" for n in names}
            send({"event": "measured", "pair": [boundary.path, setting], "names": sorted(inside), "refused": refused})


def _outer(name: str) -> str:
    return name.rsplit(":", maxsplit=1)[-1].partition(".<locals>")[0]


def _refused(ask: Asker, setting: str) -> int:
    count = 0
    cases = small_cases(setting) + random_cases(FIXED_SEED, BUDGET // 2, setting)
    for case in cases:
        try:
            ask(case)
        except (Refused, NotApplicable):
            count += 1
    return count


def _differentiated(ask: Asker, setting: str) -> None:
    """Take gradients to all columns and to each alone, so that the code of backward passes is entered."""
    columns = sorted(n for n in ask.boundary.reads if COLUMNS[n]["role"] == "signal")
    for wanted in (columns, *([n] for n in columns)):
        for case in small_cases(setting)[:3]:
            with suppress(Exception):  # a boundary without a gradient enters no more
                ask(case, gradients=wanted)


def _fails(ask: Asker, setting: str, before: int) -> str:
    """Why the laws cannot run at a boundary, or that it refuses more cases than before; empty otherwise."""
    try:
        with forbid_stand_ins():
            why, refused = smoke_check(ask, setting), _refused(ask, setting)
    except Exception as error:  # noqa: BLE001 - whatever a mutant raises is loud
        return f"{type(error).__name__}: {error}"
    return why or (f"{ask.boundary.path} refuses {refused} cases instead of {before}" if refused > before else "")
