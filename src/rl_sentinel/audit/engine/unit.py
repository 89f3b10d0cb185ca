"""The job of a child process: run the smoke check of one boundary under one setting, then check its laws."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rl_sentinel.adapters.kit.user_results import CallFailed
from rl_sentinel.adapters.loading import forbid_stand_ins
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.engine.call_trace import entered
from rl_sentinel.audit.engine.code_use import CodeUse
from rl_sentinel.audit.engine.equal_calls import EqualCalls
from rl_sentinel.audit.engine.evidence import evidence
from rl_sentinel.audit.engine.executor import Asker, Misbehaved
from rl_sentinel.audit.engine.function_filter import entry_matches, in_file_of, path_matches
from rl_sentinel.audit.engine.judge import (
    Break,
    call_all,
    names_of_expectations,
    recheck,
    search,
    smallest,
    smoke_check,
)
from rl_sentinel.audit.repro.literal import Unwritable
from rl_sentinel.audit.repro.provenance import Marker, views
from rl_sentinel.audit.repro.recorded_run import ScriptRecorder
from rl_sentinel.audit.repro.script import no_script, script
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.call import same_numbers
from rl_sentinel.core.errors import Crashed, NotApplicable, Refused, TargetRaised, Unbindable, Undecided
from rl_sentinel.core.expectations import Expectation
from rl_sentinel.core.law import Law
from rl_sentinel.core.observation import Observation
from rl_sentinel.search.case_selection import LONG_RUN


@dataclass(slots=True)
class Unit:
    """A boundary under one setting, with the laws that remain to be checked.

    Attributes:
        by_path: all boundaries of the target by path, for alternatives.
        request: the request that the worker carries out.
        loaded: as for :func:`~rl_sentinel.audit.engine.evidence.evidence`.
        names: the functions that the smoke check entered.
        cache, equal_calls: as for :class:`Asker`.
        code_use: the record of the code that is used; None if the request does not ask for it.
    """

    target: Target
    boundary: Boundary
    setting: str
    laws: Sequence[Law]
    by_path: dict[str, Boundary]
    request: Request
    loaded: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    cache: dict[int, dict[tuple[object, ...], Observation]] = field(default_factory=dict)
    code_use: CodeUse | None = None
    equal_calls: EqualCalls | None = None

    @property
    def name(self) -> tuple[str, str]:
        """Boundary and setting."""
        return self.boundary.path, self.setting

    @property
    def root(self) -> Path:
        """Root folder of the target's source code."""
        return self.target.root

    def pieces(self) -> list[str]:
        """The codes of the laws."""
        return [law.code for law in self.laws]

    def without(self, done: Collection[str]) -> Self:
        """The unit without the laws that are done."""
        return replace(self, laws=[law for law in self.laws if law.code not in done])

    def unfinished(self, piece: str, reason: str) -> Event:
        """An errored verdict for a law that could not be finished."""
        return {"event": "verdict", "law": piece, "outcome": "errored", "reason": reason}

    def run(self, send: Callable[[Event], None]) -> None:
        """Run the smoke check, then check each law; send a start event and a verdict for each law.

        If the smoke check fails, each law gets its outcome and its reason, without a start event. A boundary that the
        request does not select gets no verdict.
        """
        if self.code_use is not None:
            self.code_use.begin()
        if not self.boundary.claims.state:  # with a state, equal calls may differ
            self.equal_calls = EqualCalls()
        self._run(send)
        if self.code_use is not None:
            send(self.code_use.event())

    def _run(self, send: Callable[[Event], None]) -> None:
        send({"event": "start", "law": SMOKE_CHECK})
        outcome, reason = self._smoke_check()
        if not self._is_selected():
            return
        send({"event": "entered", "names": self.names})
        for law in self.laws:
            if outcome:
                send(self._verdict(law, outcome, reason=reason))
                continue
            send({"event": "start", "law": law.code})
            send(self._checked(law))

    def _is_selected(self) -> bool:
        """Whether the request selects this boundary: it names no function, this path, or one that was entered."""
        functions = self.request.enters
        return not functions or any(
            path_matches(self.boundary.path, f) or any(entry_matches(n, f) for n in self.names) for f in functions
        )

    def _enters_a_file(self) -> bool:
        """Whether any function entered so far is in the file of a function that the request selects."""
        return any(in_file_of(name.partition(":")[0], self.request.enters) for name in self.names)

    def _smoke_check(self) -> tuple[str, str]:
        ask = Asker(self.boundary, self.by_path, gate=self.target)
        try:
            with entered(self.target.root, self.target.files) as self.names, forbid_stand_ins():
                problem = smoke_check(ask, self.setting)
            if self.request.task == "entered" or self._enters_a_file():
                with entered(self.target.root, self.target.files) as more, forbid_stand_ins():
                    call_all(ask, self.setting)  # a function may be entered on one of the cases only
                self.names = list(dict.fromkeys([*self.names, *more]))
        except NotApplicable as error:
            return "not-applicable", str(error)
        except Exception as error:  # noqa: BLE001 - any exception of the target becomes the reason
            return "errored", _reason(error)
        if problem:
            return "errored", problem
        return ("", "") if self.names else ("errored", "no code of the target was entered")

    def _checked(self, law: Law) -> Event:
        try:
            why_not = law.applies(self.boundary)
        except Undecided as error:
            return self._verdict(law, "errored", reason=str(error))
        if why_not:
            return self._verdict(law, "not-applicable", reason=why_not)
        ask = Asker(self.boundary, self.by_path, self.cache, self.target, self.equal_calls)
        try:
            with forbid_stand_ins():
                seed, budget = self.request.seed, self.request.budget
                long_run = len(self.names) > LONG_RUN
                judgment = search(law, ask, self.setting, seed=seed, budget=budget, long_run=long_run)
                if judgment.found is None:
                    outcome = "holds" if judgment.tried else "not-applicable"
                    return self._verdict(law, outcome, tried=judgment.tried, reason=judgment.reason)
                broken, held = names_of_expectations(law, ask, judgment.found, judgment.later)
                found = smallest(law, ask, judgment.found)
            outputs = {"broken": list(broken), "held": list(held)}
            record = self._evidence(law, found) | {"outputs": outputs}
            return self._verdict(law, "broken", tried=judgment.tried, evidence=record)
        except Exception as error:  # noqa: BLE001 - any exception of the target becomes the reason
            return self._verdict(law, "errored", reason=_reason(error))

    def replayed(self, law: Law, case: Any) -> tuple[str, Break | None]:  # noqa: ANN401 - a Case
        """Check a law on one stored case.

        Returns:
            ``reproduced`` and the break, or ``fixed`` or ``not-reproducible`` and None.

        Raises:
            NotApplicable: if the boundary refuses the case or fails its smoke check; this does not count as fixed.
        """
        failed, reason = self._smoke_check()
        if failed:
            raise NotApplicable(reason)
        with forbid_stand_ins():
            try:
                result = recheck(law, Asker(self.boundary, self.by_path, gate=self.target), case)
            except Refused as error:
                raise NotApplicable(str(error)) from error
        if isinstance(result, Break):
            return "reproduced", result
        return ("fixed", None) if result else ("not-reproducible", None)

    def _evidence(self, law: Law, found: Break) -> dict[str, Any]:
        script = self._script(law, found)
        return evidence(law, self.boundary, found, self.request, dict(self._places()), script, self.loaded)

    def _places(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """File and line of each function of the boundary; for a class, of the method that is called."""
        calls = [step.call for step in self.boundary.steps if isinstance(step.call, str)]
        for path in self.boundary.path.split(" -> "):
            called = next((call for call in calls if call.startswith(f"{path}.")), path)
            with suppress(Unbindable):
                yield path, self.target.source(self.target.find(called))

    def _script(self, law: Law, found: Break) -> list[str]:
        """The script of the finding; if it cannot be written, the script of another output that breaks on this case."""
        ask = ScriptRecorder(Asker(self.boundary, self.by_path, gate=self.target))
        reason = ""
        for number, broken in _broken(law, ask, found):
            marker = Marker(self.boundary, [run.answer for run in ask.runs])
            places = views(law, found.case, marker, number, broken.pairs()) if number >= 0 else ()
            try:
                return script(law.code, broken, ask.runs, places)
            except Unwritable as why:
                reason = reason or str(why)
            except Exception as error:  # noqa: BLE001 - a finding is reported even without a script
                reason = reason or f"{type(error).__name__}: {error}"
        return no_script(reason)

    def _verdict(self, law: Law, outcome: str, **more: Any) -> Event:  # noqa: ANN401
        about = {"law": law.code, "boundary": self.boundary.path, "setting": self.setting}
        return {"event": "verdict", **about, "outcome": outcome, **more}


def _reason(error: Exception) -> str:
    """The reason of an errored verdict: the exception as the target raised it."""
    worded = isinstance(error, Crashed | CallFailed | Misbehaved | TargetRaised)
    return str(error) if worded else f"{type(error).__name__}: {error}"


def _broken(law: Law, ask: ScriptRecorder, found: Break) -> Iterator[tuple[int, Expectation]]:
    """The expectation of the finding and later broken expectations, each with its number.

    The number is -1 if the law does not yield the expectation of the finding again. A later call of the law may be
    refused or raise: the finding stays.
    """
    met = False
    with forbid_stand_ins(), suppress(Exception):
        for number, expectation in enumerate(law.expect(ask, found.case)):
            same = expectation.name == found.expectation.name and _same_results(expectation, found.expectation)
            if same or (met and _breaks(expectation)):
                met = True
                yield number, expectation
    if not met:
        yield -1, found.expectation


def _breaks(expectation: Expectation) -> bool:
    measured = expectation.measure()
    return measured is not None and measured.distance > measured.allowed


def _same_results(first: Expectation, second: Expectation) -> bool:
    """Whether two expectations compare the same observed numbers."""
    return all(same_numbers(a.observed, b.observed) for a, b in zip(first.pairs(), second.pairs(), strict=False))


def units(
    target: Target,
    boundaries: Sequence[Boundary],
    laws: Sequence[Law],
    by_path: dict[str, Boundary],
    request: Request,
) -> Iterator[Unit]:
    """A unit for each boundary and setting, with the laws of its stage; a setting without any law has no unit.

    A law that is checked once per boundary (``at_once``) is only in the unit of the first setting.
    """
    for boundary in boundaries:
        applicable = [law for law in laws if boundary.stage in law.stages]
        for n, setting in enumerate(boundary.settings):
            chosen = [law for law in applicable if n == 0 or not law.at_once]
            if chosen:
                yield Unit(target, boundary, setting, chosen, by_path, request)
