"""Audit one revision at the boundaries that enter certain functions only, and store the result."""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rl_sentinel
from rl_sentinel.audit.engine.function_filter import entry_matches, path_matches
from rl_sentinel.audit.sandbox.request import LEADING_CASES, Request
from rl_sentinel.audit.sandbox.worker_process import events, request
from rl_sentinel.audit.source.cache import digest_of, home
from rl_sentinel.audit.source.target_spec import parse_target
from rl_sentinel.core.errors import SentinelError

#: Parts of this package that no verdict depends on.
_IRRELEVANT = frozenset({"cli", "known", "recall", "remedies", "report", "train"})


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict of one law at one boundary under one setting.

    For a broken law, it has the level and the sentence of the finding, the names of the expectations (such as outputs)
    that are ``broken`` on some case, and of those that ``held`` on all cases.
    """

    law: str
    boundary: str
    setting: str
    outcome: str
    reason: str = ""
    level: str = ""
    sentence: str = ""
    broken: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        """Law and boundary."""
        return self.law, self.boundary


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowAudit:
    """The verdicts of the boundaries that enter selected functions.

    Attributes:
        error: why the target could not be audited; empty if it was.
        verdicts: the verdicts.
        entered: boundary and setting -> the entries of the call trace, ``file:line:name``, that match a selected
            function.
    """

    error: str = ""
    verdicts: tuple[Judged, ...] = ()
    entered: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def at(self, functions: Iterable[str]) -> list[Judged]:
        """The verdicts of the boundaries that are, or enter, one of the functions."""
        patterns = tuple(functions)
        return [v for v in self.verdicts if any(self._enters(v, f) for f in patterns)]

    def _enters(self, verdict: Judged, function: str) -> bool:
        names = self.entered.get((verdict.boundary, verdict.setting), ())
        return path_matches(verdict.boundary, function) or any(entry_matches(n, function) for n in names)


def source_root(target: str, python: str = sys.executable) -> Path:
    """The folder that holds the import package of a target.

    Raises:
        SentinelError: if the target's code cannot be fetched.
    """
    return Path(request(parse_target(target), "boundaries", python=python)[0].root)


def narrow_audit(target: str, functions: tuple[str, ...], *, jobs: int, python: str = sys.executable) -> NarrowAudit:
    """Audit a target at boundaries that enter one of the functions, or read the stored result of the same audit.

    ``python`` is the interpreter of the environment in which the target is imported.
    """
    try:
        job, _ = request(
            parse_target(target), "audit", python=python, enters=functions, budget=LEADING_CASES, jobs=jobs
        )
        place = home() / "recall" / f"{_key(job, python)}.json"
        if place.exists():
            return _read(json.loads(place.read_text(encoding="utf-8")))
        with closing(events(job, python)) as stream:
            result = _collected(stream, functions)
    except SentinelError as error:
        return NarrowAudit(error=str(error))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(_as_json(result)), encoding="utf-8")
    return result


def _key(job: Request, python: str) -> str:
    """A digest of the target's code, the parts of this package that decide verdicts, the request and the Python."""
    package, total = Path(rl_sentinel.__file__).parent, hashlib.sha256()
    # The digest is of the package; the commit also covers examples beside it.
    tree = (job.target["digest"], job.target.get("commit", ""))
    inputs = (job.framework, *tree, job.version, job.overlays, job.enters, job.seed, job.budget)
    environment = () if python == sys.executable else (str(Path(python).absolute()),)
    total.update(json.dumps([*inputs, *environment]).encode())
    for part in sorted(p for p in package.iterdir() if p.is_dir() and p.name not in _IRRELEVANT):
        folders = [part] if part.name != "adapters" else [part, part / "kit", part / job.framework]
        for folder in folders:
            total.update(digest_of(folder).encode() if folder is not part or len(folders) == 1 else _flat(folder))
    return total.hexdigest()[:32]


def _flat(folder: Path) -> bytes:
    """The bytes of the modules directly in a folder."""
    return b"\0".join(p.read_bytes() for p in sorted(folder.glob("*.py")))


def _collected(stream: Iterable[Mapping[str, Any]], functions: tuple[str, ...]) -> NarrowAudit:
    verdicts, entered = [], {}
    for event in stream:
        if event["event"] == "entered":
            matching = tuple(n for n in event["names"] if any(entry_matches(n, f) for f in functions))
            entered[event["boundary"], event["setting"]] = matching
        elif event["event"] == "verdict":
            verdicts.append(_judged(event))
    return NarrowAudit(verdicts=tuple(verdicts), entered=entered)


def _judged(event: Mapping[str, Any]) -> Judged:
    evidence = event.get("evidence") or {}
    return Judged(
        law=str(event["law"]),
        boundary=str(event["boundary"]),
        setting=str(event["setting"]),
        outcome=str(event["outcome"]),
        reason=str(event.get("reason", "")),
        level=str(evidence.get("level", "")),
        sentence=str(evidence["expectation"]["sentence"]) if evidence else "",
        broken=tuple(evidence["outputs"]["broken"]) if evidence else (),
        held=tuple(evidence["outputs"]["held"]) if evidence else (),
    )


def _as_json(audit: NarrowAudit) -> dict[str, Any]:
    entered = [[*place, list(names)] for place, names in audit.entered.items()]
    return {"verdicts": [asdict(v) for v in audit.verdicts], "entered": entered}


def _read(data: Mapping[str, Any]) -> NarrowAudit:
    entered = {(boundary, setting): tuple(names) for boundary, setting, names in data["entered"]}
    return NarrowAudit(verdicts=tuple(map(_as_judged, data["verdicts"])), entered=entered)


def _as_judged(data: dict[str, Any]) -> Judged:
    return Judged(**data | {name: tuple(data[name]) for name in ("broken", "held")})
