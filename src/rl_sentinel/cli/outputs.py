"""Files that an audit writes: the JSON object, reports, the known file; all at the end, or none."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rl_sentinel.adapters.installation import Installation
from rl_sentinel.audit import known as knowledge
from rl_sentinel.audit.findings import Finding
from rl_sentinel.audit.source.target_spec import Named
from rl_sentinel.cli.place import folder, put, writable
from rl_sentinel.core.errors import SentinelError
from rl_sentinel.report import issue, repro


@dataclass(slots=True)
class Outputs:
    """Where to write, and the results so far."""

    issues: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    json_path: Path | None = None
    known: Path | None = None
    objects: list[Mapping[str, Any]] = field(default_factory=list)
    shown: list[tuple[Installation, Finding]] = field(default_factory=list)
    seen: list[knowledge.Seen] = field(default_factory=list)
    accepted: knowledge.KnownFile = field(default_factory=knowledge.KnownFile)

    @classmethod
    def checked(cls, reports: Sequence[str], json_path: Path | None, known: Path | None) -> Self:
        """Take the options apart, and make sure that every place can be written to.

        Raises:
            SentinelError: one line on the first that cannot.
        """
        made = cls()
        for text in reports:
            kind, _, path = text.partition("=")
            if kind not in ("issue", "repro") or not path:
                raise SentinelError(f"--report is {text!r}, expected issue=PATH or repro=FOLDER")
            if kind == "issue":
                made.issues.append(writable(Path(path), "--report issue"))
            else:
                made.folders.append(folder(Path(path), "--report repro"))
        made.json_path = writable(json_path, "--json") if json_path else None
        made.known = writable(known, "--known") if known else None
        places = [p.resolve() for p in (*made.issues, *made.folders, made.json_path, made.known) if p]
        twice = next((p for p in places if places.count(p) > 1), None)
        if twice:
            raise SentinelError(
                f"{twice} is named twice, and would hold the last thing written to it: name one for each"
            )
        return made

    def add(self, target: Named, seen: Mapping[str, Any], shown: Sequence[Finding], version: str) -> None:
        """Add the results of one target, at the version that its code states."""
        needs = target.framework.installation(target.version)
        self.objects.append(seen)
        self.shown += [(needs, f) for f in shown]
        self.seen += [knowledge.Seen(f.signature, f.level, f.also, version) for f in shown]

    def write(self) -> None:
        """Write everything."""
        for path in self.issues:
            put(path, issue.as_issue(self.shown))
        for place in self.folders:
            place.mkdir(parents=True, exist_ok=True)
            for name, (needs, f) in zip(self._names(), self.shown, strict=True):
                put(place / f"{name}.py", repro.script(f, needs))
                put(place / f"{name}.json", json.dumps(dict(f.evidence), indent=1))
        if self.json_path:
            every = self.objects[0] if len(self.objects) == 1 else self.objects
            put(self.json_path, json.dumps(every, indent=1))
        if self.known:
            put(self.known, knowledge.updated(self.accepted, self.seen))

    def _names(self) -> list[str]:
        """A file name for each finding: short where that tells them apart, else with the whole path."""
        short = [f"{f.law}-{f.boundary.rpartition('.')[2]}-{f.setting}" for _, f in self.shown]
        often = Counter(short)
        long = [f"{f.law}-{f.boundary}-{f.setting}" for _, f in self.shown]
        names = [s if often[s] == 1 else w for s, w in zip(short, long, strict=True)]
        seen = Counter[str]()
        for number, name in enumerate(names):
            seen[name] += 1
            names[number] = name if seen[name] == 1 else f"{name}-{seen[name]}"
        return [n.replace("/", "-").replace(" -> ", "-") for n in names]
