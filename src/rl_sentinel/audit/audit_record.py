"""Record an audit with the code that decided its verdicts, to reuse verdicts whose code did not change.

A verdict depends on the target's code that its child process entered or read, on the code that the worker entered or
read before it forked, on the modules that are loaded, and on the description of the boundary. All else (this package,
options, interpreter, installed packages) is part of the name under which an audit is stored.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rl_sentinel.audit.source.changed_functions import FileChange
from rl_sentinel.audit.source.tree_state import TreeState, changes

Event = dict[str, Any]

#: Events about the code of the target: they are recorded, but not reported.
ABOUT_CODE = frozenset({"loaded-code", "used-code", "described"})


def unit_of(event: Mapping[str, Any]) -> str:
    """The unit of an event, as text: the boundary and the setting, one per line."""
    return f"{event.get('boundary')}\n{event.get('setting')}"


#: ``FILE:LINE`` in the text of an event; and other forms of a line number, which cannot be translated.
_PLACE = re.compile(r"([\w./-]+\.py):(\d+)\b")
_LINE = re.compile(r"\.py\W{1,3}line \d+|\bline \d+\W{1,4}(?:of|in) ")


class _UnknownLineError(Exception):
    """Raised if the text of an event names a line, and the number of this line in the new tree is unknown."""


@dataclass(slots=True)
class CodeUsed:
    """Functions that were entered and source that was read, as file and first line (0: the whole file).

    ``complete`` is False if code may have run that could not be recorded.
    """

    functions: list[list[Any]] = field(default_factory=list)
    reads: list[list[Any]] = field(default_factory=list)
    complete: bool = True

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event of a worker; a boundary may have run in several children."""
        self.functions += map(list, event["functions"])
        self.reads += map(list, event["reads"])
        self.complete = self.complete and bool(event.get("complete", True))

    def is_unchanged(self, changed: Mapping[str, FileChange]) -> bool:
        """Whether the record is complete, and the changes touch none of its code."""
        if not self.complete or any(file in changed and not line for file, line in self.reads):
            return False
        places = [*self.functions, *self.reads]
        return not any(file in changed and line in changed[file].functions for file, line in places)

    def moved(self, changed: Mapping[str, FileChange]) -> "CodeUsed":
        """The same functions with their line numbers in the new state; lambdas outside of functions are dropped."""
        places = [[_moved(file, line, changed) for file, line in part] for part in (self.functions, self.reads)]
        functions, reads = ([list(place) for place in part if place] for part in places)
        return CodeUsed(functions, reads, self.complete)


def _moved(file: str, line: int, changed: Mapping[str, FileChange]) -> tuple[str, int] | None:
    if file not in changed or not line:
        return file, line
    place = changed[file].lines.get(line)
    return None if place is None else (file, place)


@dataclass(slots=True)
class AuditRecord:
    """An audit, and everything that its verdicts depend on; a unit is a boundary and a setting, as in :func:`unit_of`.

    Attributes:
        tree: the state of the target's files.
        loaded: code that was used until the target was loaded; all verdicts depend on it.
        modules: the modules that were loaded.
        used: unit -> code that its child processes used.
        digests: unit -> digest of the boundary's description; empty if its verdicts cannot be reused.
        events: unit -> its events.
    """

    tree: TreeState
    loaded: CodeUsed = field(default_factory=CodeUsed)
    modules: list[str] = field(default_factory=list)
    used: dict[str, CodeUsed] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Record one event of a worker."""
        kind, unit = event["event"], unit_of(event)
        if kind == "loaded-code":
            self.loaded.add(event)
            self.modules = list(event["modules"])
        elif kind == "used-code":
            self.used.setdefault(unit, CodeUsed()).add(event)
        elif kind == "described":
            # A unit that is described twice is not reused: its verdicts could not be distinguished.
            self.digests[unit] = "" if unit in self.digests else event["digest"]
        elif kind == "entered" or (kind == "verdict" and event["law"] != "*"):
            self.events.setdefault(unit, []).append(event)

    def events_of(self, unit: str) -> list[Event]:
        """The events of a unit (boundary and setting); the first one lists the code that it used."""
        boundary, setting = unit.split("\n")
        used = self.used[unit]
        about_code = {"functions": used.functions, "reads": used.reads, "complete": used.complete}
        return [{"event": "used-code", "boundary": boundary, "setting": setting} | about_code, *self.events[unit]]

    def unchanged_in(self, tree: TreeState, target: Mapping[str, Any]) -> "AuditRecord | None":
        """The part of this audit that is still valid in another state of the tree, with new line numbers.

        None if the loaded code has changed, or if the trees differ in more than bodies of functions.

        ``target`` is the provenance of the new state, for the evidence.
        """
        changed = changes(self.tree, tree)
        if changed is None or not self.loaded.is_unchanged(changed):
            return None
        same = AuditRecord(tree, self.loaded.moved(changed), self.modules, digests=self.digests)
        for unit, events in self.events.items():
            used = self.used.get(unit)
            if used is None or not self.digests.get(unit) or not used.is_unchanged(changed):
                continue
            try:
                same.events[unit] = [_at_new_lines(event, changed, target) for event in events]
            except _UnknownLineError:
                continue
            same.used[unit] = used.moved(changed)
        return same

    def as_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        used = {unit: [one.functions, one.reads, one.complete] for unit, one in self.used.items()}
        loaded = [self.loaded.functions, self.loaded.reads, self.loaded.complete]
        return {
            "tree": self.tree.as_json(),
            "loaded": loaded,
            "modules": self.modules,
            "used": used,
            "digests": self.digests,
            "events": self.events,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AuditRecord":
        """Read what :meth:`as_json` wrote."""
        used = {unit: CodeUsed(*parts) for unit, parts in data["used"].items()}
        tree, loaded = TreeState.from_json(data["tree"]), CodeUsed(*data["loaded"])
        return cls(tree, loaded, data["modules"], used, data["digests"], data["events"])

    def drop_events(self, units: Iterable[str]) -> "AuditRecord":
        """Remove the events of units whose verdicts may differ by chance, and return this record."""
        for unit in units:
            self.events.pop(unit, None)
        return self


#: Parts of an event, and of its evidence, that may name lines of the target; citations of an adapter stay as they are.
_WITH_LINES = ("names", "reason", "expectation", "places", "script")


def _at_new_lines(event: Event, changed: Mapping[str, FileChange], target: Mapping[str, Any]) -> Event:
    """An event with the line numbers of the new tree, and with ``target`` as the new provenance of its evidence.

    Raises:
        _UnknownLineError: if the new tree lacks a named line, or the line is written in a form that cannot be moved.
    """
    moved = event | {name: _translated(event[name], changed) for name in _WITH_LINES if name in event}
    if "evidence" in event:
        record = event["evidence"]
        source = record["source"]
        place = _moved(source["file"], source["line"], changed)
        if place is None:
            raise _UnknownLineError
        parts = {name: _translated(record[name], changed) for name in _WITH_LINES if name in record}
        provenance = {"target": record["target"] | target, "source": source | {"line": place[1]}}
        moved["evidence"] = record | parts | provenance
    return moved


def _translated(value: Any, changed: Mapping[str, FileChange]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {name: _translated(part, changed) for name, part in value.items()}
    if isinstance(value, list):
        return [_translated(part, changed) for part in value]
    return _translated_text(value, changed) if isinstance(value, str) else value


def _translated_text(text: str, changed: Mapping[str, FileChange]) -> str:
    if changed and _LINE.search(text):
        raise _UnknownLineError

    def place(found: re.Match[str]) -> str:
        files = [file for file in changed if f"/{found[1]}".endswith(f"/{file}")]
        if not files or found[2] == "0":
            return found[0]
        new = _moved(files[0], int(found[2]), changed)
        if new is None:
            raise _UnknownLineError
        return f"{found[1]}:{new[1]}"

    return _PLACE.sub(place, text) if ".py:" in text else text
