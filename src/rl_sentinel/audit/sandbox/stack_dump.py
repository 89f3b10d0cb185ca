"""Read the stack of a running child process, which ``faulthandler`` writes when the parent sends a signal.

The handler is written in C and runs without the interpreter, so it works inside a loop, a lock or a library call.
"""

import ast
import faulthandler
import os
import re
import signal
import time
from functools import cache
from pathlib import Path

from rl_sentinel.core.type_parameters import parse_source

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in ', re.MULTILINE)

#: Wall-clock seconds to wait for a dump, and between two polls.
_WAIT, _POLL = 2.0, 0.01


class StackDump:
    """Shared memory into which a child writes its stack."""

    def __init__(self) -> None:
        """Open the shared memory; a fork shares it."""
        self._file = os.memfd_create("rl-sentinel-stack")

    def install_handler(self) -> None:
        """In the child: install the handler that writes the stack."""
        faulthandler.register(signal.SIGUSR1, file=self._file, all_threads=True, chain=False)

    def read(self, pid: int, root: Path) -> list[str]:
        """In the parent: ``file:line`` of each function under ``root`` on the child's stack, innermost first.

        The line is the first line of the function, 0 outside of a function. Empty if the child does not write its stack
        in time.
        """
        begin = os.fstat(self._file).st_size
        os.kill(pid, signal.SIGUSR1)
        written, end = begin, time.monotonic() + _WAIT
        while time.monotonic() < end:
            time.sleep(_POLL)
            size = os.fstat(self._file).st_size
            if size == written > begin:
                break
            written = size
        text = os.pread(self._file, written - begin, begin).decode(errors="replace")
        return functions(text, root)

    def close(self) -> None:
        """Release the shared memory."""
        os.close(self._file)


def functions(dump: str, root: Path) -> list[str]:
    """Functions under ``root`` in a dump of the fault handler, innermost first, as ``file:first line``."""
    base = root.resolve()
    places: dict[str, None] = {}
    for match in _FRAME.finditer(dump):
        file = Path(match["file"])
        if file.is_relative_to(base):
            places[f"{file.relative_to(base)}:{_first_line(file, int(match['line']))}"] = None
    return list(places)


def _first_line(file: Path, line: int) -> int:
    inside = [first for first, last in _spans(file) if first <= line <= last]
    return max(inside, default=0)


@cache
def _spans(file: Path) -> tuple[tuple[int, int], ...]:
    try:
        tree = parse_source(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple((n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, kinds))
