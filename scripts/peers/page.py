"""What the tests of frameworks say of our functions, as lines of a page."""

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.peer import Peer
from peers.places import files_with, place, python
from peers.review import Entry, Outcomes, kind, review, wrong
from rl_sentinel.core.errors import SentinelError

#: Frameworks in the order of the page.
NAMES = ("verl", "trl", "skyrl")

#: Seconds that one run of a framework's tests may take.
PATIENCE = 1200

_HERE = Path(__file__).parent


class UnexpectedError(SentinelError):
    """A test came out otherwise than the tables say."""


def outcomes(shim: str, root: Path, whose: str, unrun: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What became of each test with ``ours`` in the framework's places, or with its ``own`` functions.

    Args:
        shim: the module that defines ``PEER``.
        root: the folder with the framework's package and tests.
        whose: ``"ours"`` or ``"own"``.
        unrun: patterns of tests that are collected and not run.

    Raises:
        SentinelError: if the process that runs them ends without an answer.
    """
    peer: Peer = importlib.import_module(shim).PEER
    files = files_with(root, peer.words)
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch) / "asked.json"
        asked.write_text(json.dumps({"files": files, "unrun": list(unrun)}), encoding="utf-8")
        out = Path(scratch) / "out.json"
        ran = python(
            *("-m", "peers.child", shim, str(root), str(asked), str(out), whose),
            folder=scratch,
            seconds=PATIENCE,
            more=os.pathsep.join(sys.path),
        )
        if not out.is_file():
            last = (ran.stderr.strip().splitlines() or ["no word"])[-1]
            raise SentinelError(
                f"{peer.framework.name}'s tests ended with {ran.returncode} ({last}), expected outcomes"
            )
        return dict(json.loads(out.read_text(encoding="utf-8")))


def lines(given: Mapping[str, str], names: Sequence[str] = NAMES) -> Iterator[str]:
    """A table of counts, then every difference and what is outside, each with its reason.

    Args:
        given: where frameworks are, by name: ``PATH`` or ``PATH#REVISION``.
        names: which frameworks.

    Raises:
        UnexpectedError: at the end, if a test is not as the tables say.
    """
    yield "Tests that frameworks publish, run as they are against our functions under the frameworks' names and"
    yield "signatures (`scripts/peers/shims`). A test counts where it enters a function of `signal`."
    yield ""
    yield "| framework | collected | enter ours | agree | differ | outside | our functions entered |"
    yield "|---|---|---|---|---|---|---|"
    rest, errors = [], []
    for name in names:
        shim = f"peers.shims.{name}"
        peer: Peer = importlib.import_module(shim).PEER
        if not given.get(name) and not peer.release:
            yield f"| {name} | not run: no checkout is given | | | | | |"
            continue
        root, called = place(peer, given.get(name, ""))
        tables = review(_HERE / "reviewed" / f"{name}.toml")
        seen, own = (outcomes(shim, root, whose, tables.unrun) for whose in ("ours", "own"))
        errors += [f"{called}: {line}" for line in wrong(seen, own, tables)]
        counts = {word: sum(kind(x) == word for x in seen.values()) for word in ("agrees", "differs", "outside")}
        entered = len({function for x in seen.values() for function in x["entered"]})
        asked = counts["agrees"] + counts["differs"]
        numbers = [len(seen), asked, *counts.values(), entered]
        yield f"| {called} | {' | '.join(map(str, numbers))} |"
        rest += ["", f"{called}, where it differs:", ""]
        rest += [*_reasons(tables.differs, seen), "", f"{called}, outside:", "", *_reasons(tables.outside, seen)]
    yield from rest
    if errors:
        raise UnexpectedError("\n".join(errors))


def _reasons(entries: Iterable[Entry], seen: Outcomes) -> Iterator[str]:
    for entry in entries:
        if count := sum(entry.covers(test) for test in seen):
            yield f"- `{entry.tests.removeprefix('tests/')}` ({count}): {entry.reason}"
