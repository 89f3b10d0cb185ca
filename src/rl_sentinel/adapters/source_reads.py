"""Record which source code of the target is read as text, or as a code object, instead of being called.

A verdict depends on functions that its call enters, and on functions whose text is read: ``torch.jit.script``
compiles text, and adapters search for words in the text. Reads of a line number (:func:`line_of`) are not recorded.
"""

import dis
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, ParamSpec, TypeVar

#: A file, relative to the root, and the first line of a function in it; line 0 for the whole file.
Read = tuple[str, int]

P = ParamSpec("P")
T = TypeVar("T")

_find_source = inspect.findsource
_STANDARD = f"{Path(os.__file__).parent}/"

#: Code that takes no more than parameters or a file name from a code object.
_SIGNATURES = frozenset({inspect.__file__, dis.__file__, str(Path(__file__).with_name("stand_ins.py"))})

#: The folder of the adapters. Text that they read while they describe boundaries is not recorded, because it shows in
#: the descriptions.
_ADAPTERS = f"{Path(__file__).parent.resolve()}/"

#: Functions of the adapters that take only statements around a running import, or names that a module defines.
_OUTLINES = ("_optional_lines", "_definitions")


class SourceReads:
    """Record which source code under ``root`` is read; ``binding`` is True while adapters describe boundaries."""

    def __init__(self, root: Path) -> None:
        """Start without any reads."""
        self.base = f"{root.resolve()}/"
        self.binding = False
        self.reads: set[Read] = set()
        self.collected: list[set[Read]] = []

    def install(self) -> None:
        """Start to record. It lasts until the process ends, because Python cannot remove an audit hook."""
        _active.append(self)

        def find_source(thing: Any) -> Any:  # noqa: ANN401 - as inspect.findsource
            self.add_object(thing)
            return _find_source(thing)

        inspect.findsource = find_source  # type: ignore[assignment]  # its parameter is not by name
        sys.addaudithook(self._audited)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event of the interpreter: a file was opened, or a function's code object was read."""
        if event == "open":
            name = arguments[0]
            if isinstance(name, str) and name.endswith(".py") and not _reads_outline(sys._getframe(1)):  # noqa: SLF001
                self.add(os.path.realpath(name), 0)
        elif event == "object.__getattr__" and arguments[1] == "__code__":
            function, reader = arguments[0], sys._getframe(1).f_code.co_filename  # noqa: SLF001
            if type(function) is FunctionType and reader != __file__ and reader not in _SIGNATURES:
                self.add_code(function.__code__)

    def add_object(self, thing: Any) -> None:  # noqa: ANN401 - what inspect.getsource takes
        """Record the text of a function, or of the whole file of a class or module."""
        code = thing.__func__ if inspect.ismethod(thing) else thing
        code = code.__code__ if type(code) is FunctionType else getattr(code, "f_code", code)
        if isinstance(code, CodeType):
            self.add_code(code)
            return
        try:
            self.add(inspect.getsourcefile(thing) or "", 0)
        except TypeError:  # built in
            return

    def add_code(self, code: CodeType) -> None:
        """Record a code object; for a nested function, record its file."""
        self.add(code.co_filename, 0 if "<locals>" in code.co_qualname else code.co_firstlineno)

    def add(self, file: str, line: int) -> None:
        """Record a file, or the function at a line of the file.

        Nothing is recorded outside of the root. A read of an adapter while it describes boundaries is only collected
        for :func:`remembered`.
        """
        if not file.startswith(self.base):
            return
        read = (file.removeprefix(self.base), line)
        for collection in self.collected:
            collection.add(read)
        if not (self.binding and _reads_for_adapter()):
            self.reads.add(read)


#: The recorder of this process, if there is one.
_active: list[SourceReads] = []


def _reads_outline(frame: FrameType | None) -> bool:
    """Whether the importer, ``linecache``, or a function of ``_OUTLINES`` opened the file.

    Such reads are not recorded; reads through ``findsource`` are recorded there.
    """
    while frame is not None and frame.f_code.co_filename.startswith((_STANDARD, "<frozen")):
        code = frame.f_code
        if code.co_filename == linecache.__file__ or (code.co_name == "get_code" and "importlib" in code.co_filename):
            return True
        frame = frame.f_back
    if frame is None:
        return False
    return frame.f_code.co_name in _OUTLINES and frame.f_code.co_filename.startswith(_ADAPTERS)


def _reads_for_adapter() -> bool:
    """Whether the nearest code outside of the standard library and of this module belongs to an adapter."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the stack, without its source text
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith((_STANDARD, "<frozen")):
            return file.startswith(_ADAPTERS)
        frame = frame.f_back
    return False


@cache
def line_of(thing: Any) -> int:  # noqa: ANN401 - a function or class
    """The line (from 1) at which a function or class begins. This read of its file is not recorded.

    Raises:
        OSError: if the function or class has no source file.
        TypeError: if the function or class is built in.
    """
    return int(_find_source(thing)[1]) + 1


def remembered(compute: Callable[P, T]) -> Callable[P, T]:
    """Cache results of a function that reads source code; a cached call records the reads of the first call."""
    results: dict[Any, tuple[T, set[Read]]] = {}

    @wraps(compute)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(kwargs.items()))
        if key not in results:
            collection = set[Read]()
            for recorder in _active:
                recorder.collected.append(collection)
            try:
                results[key] = compute(*args, **kwargs), collection
            finally:
                for recorder in _active:
                    recorder.collected.remove(collection)
        result, reads = results[key]
        for recorder in _active:
            for file, line in reads:
                recorder.add(recorder.base + file, line)
        return result

    return call


@contextmanager
def sources_read_once() -> Iterator[None]:
    """Let ``inspect.getsource`` read each object only once: adapters ask for the same source many times."""
    before = inspect.getsource
    inspect.getsource = remembered(before)
    try:
        yield
    finally:
        inspect.getsource = before
