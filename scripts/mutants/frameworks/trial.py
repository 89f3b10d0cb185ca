"""Audit a mutant at the boundaries that enter its function, and the unchanged framework at the same ones."""

import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

from mutants.frameworks.draw import Entered, Function, Reach, function_of
from mutants.frameworks.planting import changed, planted
from mutants.sites import Mutant
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.sandbox.worker_process import events
from rl_sentinel.core.errors import SentinelError

#: Boundaries that are audited in one worker, before it is asked whether the mutant is found.
AT_ONCE = 2

#: Levels of a finding that ``rl-sentinel audit`` shows by default.
_SHOWN = ("fault", "contested")

Pair = tuple[str, str, str]

Outcome = Literal["found", "loud", "survived"]


class Verdict(NamedTuple):
    """The outcome of a law at a boundary under a setting; a finding that is not shown by default is no finding."""

    outcome: str
    text: str


class Result(NamedTuple):
    """What became of a mutant, and by which law at which boundary, or with which message."""

    outcome: Outcome
    law: str = ""
    where: str = ""
    detail: str = ""


@dataclass(slots=True)
class Audits:
    """Audits of one framework, as it is and with a mutant; those of the unchanged one are kept in a file."""

    job: Request
    package: str
    store: Path
    state: str
    unchanged: dict[str, dict[Pair, Verdict]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Read what was audited before in the same state of both packages."""
        for line in self.store.read_text(encoding="utf-8").splitlines() if self.store.exists() else ():
            entry = json.loads(line)
            if entry["state"] == self.state and "boundary" in entry:
                self.unchanged[entry["boundary"]] = {tuple(p): Verdict(*v) for p, v in entry["verdicts"]}

    def reach(self) -> Reach:
        """The functions that each boundary of the unchanged framework enters."""
        found: dict[str, set[Function]] = {}
        with closing(events(replace(self.job, task="entered"), sys.executable)) as stream:
            for event in stream:
                if event["event"] == "entered":
                    found.setdefault(event["boundary"], set()).update(map(function_of, event["names"]))
        entered: Entered = {path: frozenset(functions) for path, functions in found.items()}
        return Reach(entered)

    def tried(self, mutant: Mutant, boundaries: list[str]) -> Result:
        """The outcome of a mutant: a few boundaries at a time, until it is found or none is left."""
        text = changed(self._source(mutant), mutant)
        key = hashlib.sha256(f"{self.state} {mutant.module} {text}".encode()).hexdigest()
        if (known := self._stored(key)) is not None:
            return known
        result, loud = Result("survived"), ""
        with tempfile.TemporaryDirectory(prefix="rl-sentinel-mutant-") as scratch:
            root = planted(Path(self.job.root), self.package, mutant, Path(scratch))
            for at in range(0, len(boundaries), AT_ONCE):
                some = boundaries[at : at + AT_ONCE]
                before = self._before(some)
                try:
                    after = self._audit(some, root)
                except SentinelError as error:
                    result = Result("loud", detail=str(error))
                    break
                if (found := new_finding(before, after)) is not None:
                    result = found
                    break
                loud = loud or newly_loud(before, after)
            else:
                result = Result("loud", detail=loud) if loud else result
        self._write({"key": key, "name": mutant.name, "result": list(result)})
        return result

    def _source(self, mutant: Mutant) -> str:
        return (Path(self.job.root) / mutant.module).read_text(encoding="utf-8")

    def _before(self, boundaries: list[str]) -> dict[Pair, Verdict]:
        missing = [path for path in boundaries if path not in self.unchanged]
        if missing:
            verdicts = self._audit(missing, Path(self.job.root))
            for path in missing:
                of_path = {pair: verdict for pair, verdict in verdicts.items() if pair[1] == path}
                self.unchanged[path] = of_path
                self._write({"boundary": path, "verdicts": [[pair, verdict] for pair, verdict in of_path.items()]})
        return {pair: verdict for path in boundaries for pair, verdict in self.unchanged[path].items()}

    def _audit(self, boundaries: list[str], root: Path) -> dict[Pair, Verdict]:
        job = replace(self.job, root=str(root), boundaries=tuple(map(_literal, boundaries)))
        verdicts: dict[Pair, Verdict] = {}
        with closing(events(job, sys.executable)) as stream:
            for event in stream:
                if event["event"] == "verdict" and event["boundary"] in boundaries:
                    verdicts[event["law"], event["boundary"], event["setting"]] = _verdict(event)
        return verdicts

    def _stored(self, key: str) -> Result | None:
        for line in self.store.read_text(encoding="utf-8").splitlines() if self.store.exists() else ():
            entry = json.loads(line)
            if entry.get("key") == key:
                return Result(*entry["result"])
        return None

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self.lock, self.store.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"state": self.state, **entry}) + "\n")


def _literal(path: str) -> str:
    """A pattern that only matches this text."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _verdict(event: Mapping[str, Any]) -> Verdict:
    outcome, evidence = str(event["outcome"]), event.get("evidence") or {}
    if outcome != "broken":
        return Verdict(outcome, str(event.get("reason", "")))
    shown = evidence["level"] in _SHOWN
    return Verdict(outcome if shown else "hazard", str(evidence["expectation"]["sentence"]))


def new_finding(before: Mapping[Pair, Verdict], after: Mapping[Pair, Verdict]) -> Result | None:
    """The first finding that the unchanged framework does not have."""
    for (law, boundary, setting), verdict in sorted(after.items()):
        was = before.get((law, boundary, setting))
        if verdict.outcome == "broken" and (was is None or was.outcome != "broken"):
            return Result("found", law, f"{boundary} [{setting}]", verdict.text)
    return None


def newly_loud(before: Mapping[Pair, Verdict], after: Mapping[Pair, Verdict]) -> str:
    """What shows without a law: a pair errs that did not, a boundary is gone, or refuses all cases that it answered."""
    for pair, verdict in sorted(after.items()):
        was = before.get(pair)
        if was is not None and verdict.outcome == "errored" != was.outcome:
            return verdict.text
        if was is not None and verdict.outcome == "not-applicable" and was.outcome in {"broken", "holds"}:
            return f"{pair[0]} has no case left at {pair[1]}: {verdict.text}"
    gone = sorted({boundary for _, boundary, _ in before} - {boundary for _, boundary, _ in after})
    if gone:
        return f"{gone[0]} is no longer bound"
    return ""
