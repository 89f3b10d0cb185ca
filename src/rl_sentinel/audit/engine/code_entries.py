"""Record which functions of a target a process enters, at no cost per call.

CPython 3.11 counts the first calls of each code object, to specialise it after eight of them
(``PyCodeObject.co_warmup``). A count that moved since the fork is a function that was entered, in any thread and
through any caller. Code objects are collected as the importer runs them. Other interpreters are not supported: there
all boundaries are checked again after a change.
"""

import ctypes
import inspect
import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

#: A function: its file, relative to the root, and its first line.
Place = tuple[str, int]

#: Place of ``co_warmup`` in a code object, in bytes, and its value in a function that was never entered.
_OFFSET, _COLD = 52, -8

#: Audit events of another process, whose calls are not seen here.
_PROCESSES = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn"}
)


def is_supported() -> bool:
    """Whether this interpreter counts calls as expected."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return False
    code = compile("def probe(): pass", "<probe>", "exec").co_consts[0]
    counts = [_count(code)]
    probe = FunctionType(code, {})
    for _ in range(10):
        probe()
        counts.append(_count(code))
    return counts == [*range(_COLD, 1), 0, 0]


def _count(code: CodeType) -> int:
    return ctypes.c_short.from_address(id(code) + _OFFSET).value


class CodeEntries:
    """The functions under ``root`` that this process enters; each is named by file and first line.

    A function inside another one counts as the outer one.
    """

    def __init__(self, root: Path) -> None:
        """Nothing is entered yet."""
        self.base = f"{root.resolve()}/"
        #: Each code object, which stays alive here, with its outermost function.
        self.codes: dict[int, tuple[CodeType, CodeType]] = {}
        self.loaded: set[int] = set()
        self.other_process = False

    def install(self) -> None:
        """Collect code objects for the rest of the process: audit hooks cannot be removed."""
        sys.addaudithook(self._audited)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("exec", "function.__new__"):
            code = arguments[0]
            if isinstance(code, CodeType) and code.co_filename.startswith(self.base):
                self._collect(code, None)
        elif event == "code.__new__":
            # A copy with other bytes: which function it is cannot be said.
            self.other_process |= str(arguments[1]).startswith(self.base)
        elif event in _PROCESSES:
            self.other_process = True

    def _collect(self, code: CodeType, outermost: CodeType | None) -> None:
        if id(code) in self.codes:
            return
        is_function = bool(code.co_flags & inspect.CO_NEWLOCALS)
        outermost = outermost or (code if is_function else None)
        self.codes[id(code)] = code, outermost or code
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._collect(constant, outermost)

    def modules(self) -> list[str]:
        """The files whose top level was run, in order."""
        top = (code.co_filename for code, _ in self.codes.values() if code.co_name == "<module>")
        return list(dict.fromkeys(name.removeprefix(self.base) for name in top))

    def mark_loaded(self) -> list[Place]:
        """The functions that were entered so far; :meth:`entered_since` leaves them out."""
        self.loaded = {key for key, (code, _) in self.codes.items() if _count(code) != _COLD}
        return self._places(self.loaded)

    def mark_forked(self) -> None:
        """Forget the processes that the parent started."""
        self.other_process = False

    def entered_since(self) -> list[Place]:
        """The functions that were not entered when the target was loaded, and are by now."""
        later = self.codes.keys() - self.loaded
        return self._places(key for key in later if _count(self.codes[key][0]) != _COLD)

    def _places(self, keys: Iterable[int]) -> list[Place]:
        outermost = (self.codes[key][1] for key in keys)
        return sorted({(code.co_filename.removeprefix(self.base), code.co_firstlineno) for code in outermost})

    def is_complete(self) -> bool:
        """Whether no other process ran code for this one, and no code object was copied."""
        waited_for = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        try:
            alive = any(children.read_bytes() for children in Path("/proc/self/task").glob("*/children"))
        except OSError:
            return False
        return not (self.other_process or waited_for or alive)
