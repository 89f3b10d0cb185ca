"""Record which functions of a target a process enters, at almost no cost per call.

CPython 3.11 counts the first eight calls of each code object (``PyCodeObject.co_warmup``), to decide when to specialize
it. From 3.12 on, ``sys.monitoring`` reports the first call of each code object, and only that. Both include calls from
any caller and thread. Code objects are collected when the importer runs them. On other interpreters, all boundaries are
checked again after a change.
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

#: Offset in bytes of ``co_warmup`` in a code object of CPython 3.11, and its value before the first call.
_OFFSET, _COLD = 52, -8

#: ``sys.monitoring`` of newer interpreters.
_monitoring: Any = getattr(sys, "monitoring", None)

#: A tool number of ``sys.monitoring`` that is not reserved for a kind of tool.
_TOOL = 3

#: Audit events at the start of another process, whose calls cannot be recorded here.
_PROCESSES = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen", "pty.spawn"}
)

#: Audit events whose first argument is a code object.
_NEW_CODE = frozenset({"exec", "function.__new__"})


def is_supported() -> bool:
    """Whether this interpreter reports which functions were entered."""
    if _monitoring is not None:
        return bool(_monitoring.get_tool(_TOOL) is None)
    code = compile("def probe(): pass", "<probe>", "exec").co_consts[0]
    if sys.implementation.name != "cpython" or sys.version_info[:2] != (3, 11):
        return False
    counts, probe = [_count(code)], FunctionType(code, {})
    for _ in range(10):
        probe()
        counts.append(_count(code))
    return counts == [*range(_COLD, 1), 0, 0]


def _count(code: CodeType) -> int:
    return ctypes.c_short.from_address(id(code) + _OFFSET).value


class CodeEntries:
    """The functions under ``root`` that this process enters; for a nested function, the outer function is recorded."""

    def __init__(self, root: Path) -> None:
        """Start without entered functions."""
        self.base = f"{root.resolve()}/"
        #: ``id`` of a code object -> the code object, which stays alive here, and the code of its outermost function.
        self.codes: dict[int, tuple[CodeType, CodeType]] = {}
        self.reported = set[int]()
        self.loaded = set[int]()
        self.other_process = False

    def install(self) -> None:
        """Start recording. It lasts until the process ends, because Python cannot remove an audit hook."""
        sys.addaudithook(self._audited)
        if _monitoring is not None:
            _monitoring.use_tool_id(_TOOL, "rl-sentinel")
            _monitoring.register_callback(_TOOL, _monitoring.events.PY_START, self._started)
            _monitoring.set_events(_TOOL, _monitoring.events.PY_START)

    def _started(self, code: CodeType, _offset: int) -> object:
        if code.co_filename.startswith(self.base):
            self.reported.add(id(code))
        silent: object = _monitoring.DISABLE  # reported once is enough
        return silent

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEW_CODE:
            code = arguments[0]
            if isinstance(code, CodeType) and code.co_filename.startswith(self.base):
                self._collect(code, None)
        elif event == "code.__new__":
            # A copy of a code object with other bytecode cannot be assigned to its function.
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

    def _is_entered(self, key: int) -> bool:
        return key in self.reported if _monitoring is not None else _count(self.codes[key][0]) != _COLD

    def modules(self) -> list[str]:
        """The files whose module body was run, in order."""
        top = (code.co_filename for code, _ in self.codes.values() if code.co_name == "<module>")
        return list(dict.fromkeys(name.removeprefix(self.base) for name in top))

    def mark_loaded(self) -> list[Place]:
        """Return the functions that were entered so far, and leave them out of :meth:`entered_since`."""
        self.loaded = {key for key in self.codes if self._is_entered(key)}
        return self._places(self.loaded)

    def mark_forked(self) -> None:
        """In a new child: forget the processes that the parent started."""
        self.other_process = False

    def entered_since(self) -> list[Place]:
        """Functions that were entered only after the target was loaded."""
        return self._places(key for key in self.codes.keys() - self.loaded if self._is_entered(key))

    def _places(self, keys: Iterable[int]) -> list[Place]:
        outermost = (self.codes[key][1] for key in keys)
        return sorted({(code.co_filename.removeprefix(self.base), code.co_firstlineno) for code in outermost})

    def is_complete(self) -> bool:
        """Whether it is known that no other process ran code for this process, and that no code object was copied."""
        waited_for = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        try:
            alive = any(children.read_bytes() for children in Path("/proc/self/task").glob("*/children"))
        except OSError:
            return False
        return not (self.other_process or waited_for or alive)
