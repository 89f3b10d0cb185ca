"""Record which functions of the target's source tree a call entered."""

import inspect
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

#: The file name of code that is generated at run time, for example by ``dataclasses``.
_GENERATED = "<string>"


@contextmanager
def entered(root: Path, files: Collection[str] = ()) -> Iterator[list[str]]:
    """Collect ``file:line:qualified name`` of each function under ``root``, ordered by first call; filled on exit.

    Functions that only other threads entered (threads started meanwhile) come next, in alphabetical order. ``files``
    are the names of code without a file, such as notebook cells, to record too. A method that a decorator generates,
    such as the constructor of a dataclass, comes last, with the file of its class and line 0, if another function was
    entered.
    """
    base = str(root.resolve()) + "/"
    functions: dict[str, None] = {}
    of_threads: dict[str, None] = {}
    generated: dict[tuple[type, str], None] = {}

    known: dict[int, CodeType] = {}  # the code objects that need no second look, which stay alive here

    def watch(frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - a callback of the interpreter
        code = frame.f_code
        if id(code) in known or event != "call":
            return
        if code.co_filename == _GENERATED and "self" in frame.f_locals:
            generated[type(frame.f_locals["self"]), code.co_name] = None
            return
        if code.co_filename.startswith(base) or code.co_filename in files:
            is_main = threading.get_ident() == main
            found = functions if is_main else of_threads
            found[f"{code.co_filename.removeprefix(base)}:{code.co_firstlineno}:{code.co_qualname}"] = None
            if not is_main:
                return  # the main thread may enter it later
        known[id(code)] = code

    names: list[str] = []
    main, before, before_threads = threading.get_ident(), sys.gettrace(), threading.gettrace()
    # A trace function that returns None sees the start of each frame; a profile function would see each return and each
    # call of a builtin too, which takes four times as long.
    sys.settrace(watch)
    threading.settrace(watch)
    try:
        yield names
    finally:
        threading.settrace(before_threads)
        sys.settrace(before)
        functions |= dict.fromkeys(sorted(of_threads))
        names.extend(functions)
        names.extend(place for cls, name in generated if functions and (place := _place(cls, name, base)))


def _place(cls: type, name: str, base: str) -> str:
    """``file:0:qualified name`` of a generated method; empty if its class is not under ``base``.

    The line is 0, because a generated method has no line.
    """
    try:
        file = inspect.getfile(cls)
    except (OSError, TypeError):
        return ""
    return f"{file.removeprefix(base)}:0:{cls.__qualname__}.{name}" if file.startswith(base) else ""
