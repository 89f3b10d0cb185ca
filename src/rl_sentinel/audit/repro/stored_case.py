"""Replay stored findings: match each record to a boundary, and check the law of the record on its case."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rl_sentinel.audit.engine.judge import Break
from rl_sentinel.audit.engine.unit import Unit
from rl_sentinel.audit.sandbox.job import SMOKE_CHECK, Event
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Case
from rl_sentinel.core.errors import NotApplicable, SentinelError
from rl_sentinel.core.law import Law
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.core.storage import case_from_json

#: Reason for a case on which the law has nothing to compare.
_LAPSED = "the law has nothing to compare on this case: the case was edited or the law has changed, audit again"


@dataclass(frozen=True, slots=True)
class Replay:
    """A unit with one law and one case; ``number`` is its index in the request."""

    unit: Unit
    case: Case
    number: int

    @property
    def name(self) -> tuple[str, str]:
        """Boundary, setting and number of the replay; the number separates the crashes of different replays."""
        return self.unit.boundary.path, f"{self.unit.setting} #{self.number}"

    @property
    def root(self) -> Path:
        """Root folder of the target's source code."""
        return self.unit.root

    def pieces(self) -> list[str]:
        """The law's code."""
        return self.unit.pieces()

    def without(self, done: Collection[str]) -> Self:  # noqa: ARG002 - there is only one piece
        """Return this replay: its single piece cannot be left out."""
        return self

    def unfinished(self, piece: str, reason: str) -> Event:
        """The event for a case whose replay failed."""
        return replay_event(self.number, "not-reproducible", reason, law=piece)

    def run(self, send: Callable[[Event], None]) -> None:
        """Check the law on the case; the result is ``reproduced``, ``fixed`` or ``not-reproducible``."""
        send({"event": "start", "law": SMOKE_CHECK})
        law = self.unit.laws[0]
        try:
            status, broken = self.unit.replayed(law, self.case)
        except NotApplicable as error:
            status, broken, reason = "not-reproducible", None, str(error)
        except Exception as error:  # noqa: BLE001 - any exception of the target becomes the reason
            status, broken, reason = "not-reproducible", None, f"{type(error).__name__}: {error}"
        else:
            reason = _LAPSED if status == "not-reproducible" else ""
        more = {"distance": str(broken.distance)} if isinstance(broken, Break) else {}
        send(replay_event(self.number, status, reason, law=law.code, **more))


def replay_event(number: int, status: str, reason: str, **more: Any) -> Event:  # noqa: ANN401 - plain JSON
    """The event that reports the replay status of record ``number`` of the request."""
    return {"event": "replay", "number": number, "status": status, "reason": reason, **more}


def replays(
    records: Sequence[Any],
    bound: Sequence[Boundary],
    unbound: Sequence[Unbound],
    laws: dict[str, Law],
    unit: Callable[[Boundary, str, list[Law]], Unit],
) -> Iterator[Replay | Event]:
    """A replay for each record, or its result if the target lacks the boundary, or no law has the record's code.

    Raises:
        SentinelError: if a record contradicts the target: another stage, an override that the boundary does not have,
            or (for a target with the same digest) other knob values.
    """
    for number, record in enumerate(records):
        case = case_from_json(record["constructed_scenario"])
        path, law = str(record["boundary"]), laws.get(str(record["law"]))
        match = next((b for b in bound if b.path == path and case.setting in b.settings), None)
        if law is None:
            yield replay_event(number, "not-reproducible", f"{record['law']} is not a known law")
        elif match is None:
            reason = _unbound_reason(path, case.setting, bound, unbound)
            yield replay_event(number, "not-reproducible", f"{path}: {reason}")
        else:
            replay_unit = unit(match, case.setting, [law])
            _check(record, replay_unit)
            yield Replay(replay_unit, case, number)


#: Why a record does not fit the boundary that is replayed.
_CAUSE = "the file was edited, or the target is another one, so audit again"


def _check(record: Any, unit: Unit) -> None:  # noqa: ANN401 - plain JSON
    expected: dict[str, Any] = {"stage": unit.boundary.stage}
    digest = unit.request.target.get("digest")
    if digest and record["target"].get("digest") == digest:
        expected["knobs"] = dict(unit.boundary.settings[unit.setting])
    settings = unit.boundary.settings[unit.setting]
    known = {*settings, *(knob.name for knob in unit.boundary.claims.knobs)}
    for key in record["constructed_scenario"].get("override", {}):
        if key not in known:
            place = f"evidence {record['signature']}[constructed_scenario.override]"
            hint = f"expected a setting of that boundary ({', '.join(sorted(known)) or 'which has no settings'})"
            raise SentinelError(f"{place} has {key!r}, {hint}: {_CAUSE}")
    for key, value in expected.items():
        if key in record and record[key] != value:
            path, found, wanted = _first_difference(key, record[key], value)
            place = f"evidence {record['signature']}[{path}]"
            raise SentinelError(f"{place} is {shortened(found)}, expected {wanted!r} as in the target: {_CAUSE}")


def _first_difference(path: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:  # noqa: ANN401 - plain JSON
    """The path of the first setting that differs, and its two values; if they are no mappings, the path and values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in sorted({*found, *wanted}):
            if found.get(name) != wanted.get(name):
                return f"{path}.{name}", found.get(name), wanted.get(name)
    return path, found, wanted


def _unbound_reason(path: str, setting: str, bound: Sequence[Boundary], unbound: Sequence[Unbound]) -> str:
    if any(b.path == path for b in bound):
        return f"the boundary has no setting {setting!r} in this target"
    return next((u.reason for u in unbound if u.path == path), "the target has no such boundary")
