"""Store verdicts on disk and reuse them if target, package, options and environment are unchanged.

The key covers the bytes of this package and (in the request) of the target, size and time of the files under the
target's root and on the interpreter's path, and the request. A verdict that depends on time or on a crash is never
stored. If only bodies of functions of the target changed, the verdicts of boundaries that entered no changed function
are taken from the last audit (:mod:`rl_sentinel.audit.audit_record`).
"""

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import rl_sentinel
from rl_sentinel.audit.audit_record import ABOUT_CODE, AuditRecord, unit_of
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.sandbox.worker_process import events
from rl_sentinel.audit.source.cache import digest_of, home
from rl_sentinel.audit.source.interpreter import query
from rl_sentinel.audit.source.tree_state import TreeState, tree_state

#: Most audits that are stored, and most targets whose last audit is stored with its code; the oldest are deleted.
MOST_STORED, MOST_LAST = 64, 8

#: Environment variables that are passed to a worker and may change its results.
_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")

#: Reasons that another run may not reproduce: time limits, crashes, memory.
_BY_CHANCE = re.compile(r"more than|was killed|exit status|untried|did not return|[Mm]emory|timed out|[Tt]imeout")


def stored_or_run(job: Request, python: str, *, fresh: bool) -> Generator[dict[str, Any]]:
    """The events of an audit: stored events after one ``stored`` event, or new events of a worker, stored if possible.

    For boundaries that a change did not touch, the events of the last audit follow one ``unchanged`` event each. With
    ``fresh`` everything is checked.
    """
    if not _can_be_stored(job):
        yield from events(job, python)
        return
    keys = _keys(job, python)
    path, last_path = (
        home() / "verdicts" / f"{keys.audit}.json",
        home() / "verdicts" / "last" / f"{keys.context}.json",
    )
    stored = None if fresh else _read(path)
    if stored is not None:
        yield {"event": "stored"}
        yield from stored
        return
    tree = tree_state(Path(job.root))
    audit, last = AuditRecord(tree or TreeState()), None if fresh or tree is None else _unchanged(last_path, job, tree)
    new_events = list[dict[str, Any]]()
    with closing(_events(replace(job, records_code=tree is not None), python, last)) as stream:
        for event in stream:
            audit.take(event)
            if event["event"] not in ABOUT_CODE:
                new_events.append(event)
                yield event
    # A file that changed while the worker ran may have been read before or after.
    if _keys(job, python) != keys:
        return
    by_chance = {unit_of(event) for event in new_events if _by_chance(event)}
    if not by_chance:
        _write(path, [event for event in new_events if event["event"] != "unchanged"], MOST_STORED)
    if tree is not None:
        _write(last_path, audit.drop_events(by_chance).as_json(), MOST_LAST)


def _unchanged(path: Path, job: Request, tree: TreeState) -> AuditRecord | None:
    """The part of the last audit that is still valid in this state of the tree; None without such an audit."""
    data = _read(path)
    provenance = dict(job.target) | {"framework": job.framework, "version": job.version}
    return None if data is None else AuditRecord.from_json(data).unchanged_in(tree, provenance)


def _events(job: Request, python: str, last: AuditRecord | None) -> Generator[dict[str, Any]]:
    """The events of a worker for changed boundaries, followed by stored events for unchanged ones."""
    if last is not None:
        unchanged = {unit: last.digests[unit] for unit in last.events}
        job = replace(job, unchanged=unchanged, modules=tuple(last.modules))
    with closing(events(job, python)) as stream:
        for event in stream:
            yield event
            if event["event"] == "unchanged" and last is not None:
                yield from last.events_of(unit_of(event))


def _can_be_stored(job: Request) -> bool:
    """Whether this is a whole audit whose dependencies are known; for a user's function or recipe they are not."""
    users_code = job.function or job.recipe
    return job.task == "audit" and not users_code and not job.enters and bool(job.target.get("digest"))


def _by_chance(event: Mapping[str, Any]) -> bool:
    return event.get("outcome") == "errored" and bool(_BY_CHANCE.search(str(event.get("reason", ""))))


class _Keys(NamedTuple):
    """Digests of everything that verdicts depend on: ``audit`` includes the target's tree, ``context`` does not."""

    context: str
    audit: str


def _keys(job: Request, python: str) -> _Keys:
    package = Path(rl_sentinel.__file__).parent
    request = {name: value for name, value in job.as_json().items() if name not in ("jobs", "target")}
    context = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    context.update(digest_of(package).encode())
    machine = [platform.node(), platform.machine(), *(os.environ.get(name, "") for name in _VARIABLES)]
    state = {name: value for name, value in job.target.items() if name not in ("digest", "commit")}
    context.update(json.dumps([python, *machine, state]).encode())
    root = Path(job.root)
    for folder in _search_path(python):
        if folder != root:
            _add_files(context, folder, package)
    audit = context.copy()
    audit.update(json.dumps([job.target.get("digest"), job.target.get("commit")]).encode())
    _add_files(audit, root, package)
    return _Keys(context.hexdigest()[:32], audit.hexdigest()[:32])


def _add_files(total: "hashlib._Hash", folder: Path, package: Path) -> None:
    for line in _files(folder, str(package)):
        total.update(line.encode(errors="surrogateescape"))


def _search_path(python: str) -> list[Path]:
    """The path of the worker's interpreter, and the folders and archives that it searches for modules."""
    search_path = sys.path if python == sys.executable else query(python, "answer(sys.path)")
    places = [Path(p) for p in search_path if p and Path(p).exists()]
    return [Path(python).resolve(), *places]


def _files(path: Path, digested: str) -> Iterator[str]:
    """One line per file at a path: name, size and time; without hidden folders, ``__pycache__`` and ``digested``."""
    if not path.is_dir():
        status = path.stat()
        yield f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n"
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(f for f in folders if f[0] != "." and f != "__pycache__" and f"{folder}/{f}" != digested)
        for name in sorted(names):
            with suppress(FileNotFoundError):  # a broken link
                status = Path(folder, name).stat()
                yield f"{folder}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n"


def _read(path: Path) -> Any:  # noqa: ANN401 - JSON
    """The content of a stored file; None if the file is missing or damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        body = json.dumps(data["content"])
        return data["content"] if hashlib.sha256(body.encode()).hexdigest() == data["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, content: Any, most: int) -> None:  # noqa: ANN401 - JSON
    """Store JSON, and delete the oldest of more than ``most`` files; does nothing if the cache cannot be written."""
    body = json.dumps(content)
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "content": json.loads(body)})
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
        files = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
        for old in files[:-most]:
            old.unlink()
