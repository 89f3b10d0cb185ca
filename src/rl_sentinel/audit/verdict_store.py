"""Store verdicts on disk and reuse them if target, package, options and environment are unchanged.

The key covers everything that a worker can read: the bytes of this package and (in the request) of the target, size and
time of all files under the target's root and on the interpreter's path, and the request. A verdict that depends on time
or on a crash is never stored.
"""

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import rl_sentinel
from rl_sentinel.audit.sandbox.request import Request
from rl_sentinel.audit.sandbox.worker_process import events
from rl_sentinel.audit.source.cache import digest_of, home
from rl_sentinel.audit.source.interpreter import query

#: Most audits that are stored; the oldest are deleted first.
MOST_STORED = 64

#: Environment variables that are passed to a worker and may change its results.
_VARIABLES = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")

#: Reasons that another run may not reproduce: time limits, crashes, memory.
_BY_CHANCE = re.compile(r"more than|was killed|exit status|untried|never came back|[Mm]emory|timed out|[Tt]imeout")


def stored_or_run(job: Request, python: str, *, fresh: bool) -> Generator[dict[str, Any]]:
    """The events of an audit: from the store, after one ``stored`` event, or from a worker, whose events are stored.

    With ``fresh`` the worker always runs.
    """
    if not _can_be_stored(job):
        yield from events(job, python)
        return
    key = _key(job, python)
    place = home() / "verdicts" / f"{key}.json"
    stored = None if fresh else _read(place)
    if stored is not None:
        yield {"event": "stored"}
        yield from stored
        return
    new_events = list[dict[str, Any]]()
    with closing(events(job, python)) as stream:
        for event in stream:
            new_events.append(event)
            yield event
    # A file that changed while the worker ran may have been read before or after.
    if not any(_by_chance(event) for event in new_events) and _key(job, python) == key:
        _write(place, new_events)


def _can_be_stored(job: Request) -> bool:
    """Whether all dependencies of the audit are known; for a user's function or recipe they are not."""
    users_code = job.function or job.recipe
    return job.task == "audit" and not users_code and not job.enters and bool(job.target.get("digest"))


def _by_chance(event: Mapping[str, Any]) -> bool:
    return event.get("outcome") == "errored" and bool(_BY_CHANCE.search(str(event.get("reason", ""))))


def _key(job: Request, python: str) -> str:
    """A digest of everything that the verdicts depend on."""
    package = Path(rl_sentinel.__file__).parent
    request = {name: value for name, value in job.as_json().items() if name != "jobs"}
    total = hashlib.sha256(json.dumps(request, sort_keys=True).encode())
    total.update(digest_of(package).encode())
    machine = [platform.node(), platform.machine(), *(os.environ.get(name, "") for name in _VARIABLES)]
    total.update(json.dumps([python, *machine]).encode())
    for folder in (Path(job.root), *_search_path(python)):
        for line in _files(folder, str(package)):
            total.update(line.encode(errors="surrogateescape"))
    return total.hexdigest()[:32]


def _search_path(python: str) -> list[Path]:
    """Where the interpreter of the worker looks for modules, and the interpreter itself."""
    search_path = sys.path if python == sys.executable else query(python, "answer(sys.path)")
    places = [Path(p) for p in search_path if p and Path(p).exists()]
    return [Path(python).resolve(), *places]


def _files(place: Path, digested: str) -> Iterator[str]:
    """Name, size and time of all files at a place, in order, without compiled code and the folder ``digested``."""
    if not place.is_dir():
        status = place.stat()
        yield f"{place}\0{status.st_size}\0{status.st_mtime_ns}\n"
        return
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(f for f in folders if f[0] != "." and f != "__pycache__" and f"{folder}/{f}" != digested)
        for name in sorted(names):
            with suppress(FileNotFoundError):  # a broken link
                status = Path(folder, name).stat()
                yield f"{folder}/{name}\0{status.st_size}\0{status.st_mtime_ns}\n"


def _read(place: Path) -> list[dict[str, Any]] | None:
    """The stored events; None if the file is missing or damaged."""
    try:
        data = json.loads(place.read_text(encoding="utf-8"))
        body = json.dumps(data["events"])
        return list(data["events"]) if hashlib.sha256(body.encode()).hexdigest() == data["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(place: Path, new_events: Iterable[dict[str, Any]]) -> None:
    """Store events and delete the oldest audits; does nothing if the cache cannot be written."""
    body = json.dumps(list(new_events))
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "events": json.loads(body)})
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(place)
        files = sorted(place.parent.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
        for old in files[:-MOST_STORED]:
            old.unlink()
