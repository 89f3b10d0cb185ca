"""The process in which a framework's tests run: it loads the framework, puts ours in the place of its, and asks pytest.

python -m peers.child SHIM ROOT ASKED OUT ours|own, where the file ASKED tells which test files, and which tests are
collected and not run.
"""

import importlib
import inspect
import json
import os
import random
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from peers.peer import Peer
from peers.review import Entry
from rl_sentinel import signal
from rl_sentinel.adapters.loading import load
from rl_sentinel.adapters.target import Target
from rl_sentinel.audit.source.overlay import overlays

#: The folder of our functions.
SIGNAL = str(Path(signal.__path__[0])) + os.sep

#: Nothing of pytest's that could change what a test sees, or order tests anew.
SILENT = (
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
    "-q",
    "--import-mode=importlib",
    "--continue-on-collection-errors",
    "-W",
    "ignore",
    "--tb=short",
)


class Record:
    """What became of every test that was collected: outcome, why, and which of ours it entered."""

    def __init__(self, unrun: Sequence[Entry]) -> None:
        """``unrun`` covers the tests that are collected and not run."""
        self.unrun = unrun
        self.tests: dict[str, dict[str, Any]] = {}
        self.entered: set[str] = set()

    def _entering(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        public = "<" not in code.co_qualname and not any(x.startswith("_") for x in code.co_qualname.split("."))
        if event == "call" and public and code.co_filename.startswith(SIGNAL):
            module = Path(code.co_filename).relative_to(SIGNAL).with_suffix("")
            if str(module) not in ("checks", "segments"):
                self.entered.add(f"{'.'.join(module.parts)}.{code.co_qualname}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Note which of our functions the test enters, through whatever it calls."""
        sys.setprofile(self._entering)
        try:
            return (yield)
        finally:
            sys.setprofile(None)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected is one test that fails."""
        if report.failed or report.skipped:
            self.tests[report.nodeid] = {
                "outcome": "skipped" if report.skipped else "failed",
                "why": _last_line(report.longrepr),
                "entered": [],
            }

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out, and note, what is only collected."""
        for item in items:
            if any(entry.covers(item.nodeid) for entry in self.unrun):
                self.tests[item.nodeid] = {"outcome": "unrun", "why": "", "entered": []}
        items[:] = [item for item in items if item.nodeid not in self.tests]

    def pytest_runtest_setup(self) -> None:
        """The same numbers whatever was drawn before."""
        self.entered.clear()
        random.seed(0)
        torch.default_generator.manual_seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The worst of a test's three phases."""
        seen = self.tests.setdefault(report.nodeid, {"outcome": "passed", "why": "", "entered": []})
        seen["entered"] = sorted(self.entered)
        if not report.passed and seen["outcome"] == "passed":
            seen["outcome"], seen["why"] = report.outcome, _last_line(report.longrepr)


def _last_line(told: object) -> str:
    """The line of a traceback that says what was wrong, or the reason of a skip."""
    if isinstance(told, tuple):
        return str(told[2])
    lines = [line[1:].strip() for line in str(told).splitlines() if line.startswith("E ")]
    return (lines or str(told).strip().splitlines() or [""])[0][:200]


def put(peer: Peer, target: Target) -> None:
    """Put ours wherever the framework holds its own: in modules, in classes, and in registries."""
    for path, ours in peer.ours.items():
        owner, leaf = target.find(path.rpartition(".")[0]), path.rpartition(".")[2]
        original = inspect.getattr_static(owner, leaf)
        setattr(owner, leaf, staticmethod(ours) if isinstance(original, staticmethod) else ours)
        for holder in _holders(peer.framework.package):
            for name, held in list(holder.items()):
                if _same(held, original):
                    holder[name] = ours


def _same(held: object, original: object) -> bool:
    if not (inspect.isfunction(held) or inspect.isclass(held)) or not callable(original):
        return False
    return inspect.unwrap(held) is inspect.unwrap(original)


def _holders(package: str) -> Iterator[dict[Any, Any]]:
    """Every dictionary in which a module of the package holds things, and those of its classes."""
    modules = [m for n, m in list(sys.modules.items()) if f"{n}.".startswith(f"{package}.") and m is not None]
    for module in modules:
        yield vars(module)
        for thing in list(vars(module).values()):
            if isinstance(thing, dict):
                yield thing
            elif inspect.isclass(thing) and thing.__module__ == module.__name__:
                yield from (d for d in vars(thing).values() if isinstance(d, dict))


def main() -> None:
    """Run the files, and write what became of each test."""
    shim, root, asked, out, whose = sys.argv[1:]
    told = json.loads(Path(asked).read_text(encoding="utf-8"))
    peer: Peer = importlib.import_module(shim).PEER
    folder = Path(root)
    target = load(peer.framework, folder, "", [Path(p) for p in overlays(peer.framework, "")])
    record = Record([Entry(tests, "", run=False) for tests in told["unrun"]])
    for path in peer.ours:
        target.find(path)
    if whose == "ours":
        put(peer, target)
    empty = Path.cwd() / "empty.ini"
    empty.write_text("[pytest]\n", encoding="utf-8")
    pytest.main(
        [*SILENT, "-c", str(empty), f"--rootdir={folder}", *(str(folder / f) for f in told["files"])], plugins=[record]
    )
    Path(out).write_text(json.dumps(record.tests), encoding="utf-8")


if __name__ == "__main__":
    main()
