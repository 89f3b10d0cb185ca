"""Record which functions of the target's source tree a call entered."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


@contextmanager
def entered(root: Path, files: Collection[str] = ()) -> Iterator[list[str]]:
    """Collect ``file:line:qualified name`` of each function under ``root``, ordered by first call; filled on exit.

    ``files`` are the names of code without a file, such as notebook cells.
    """
    base = str(root.resolve()) + "/"
    functions: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - a callback of the interpreter
        code = frame.f_code
        if event == "call" and (code.co_filename.startswith(base) or code.co_filename in files):
            functions[f"{code.co_filename.removeprefix(base)}:{code.co_firstlineno}:{code.co_qualname}"] = None

    names: list[str] = []
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield names
    finally:
        sys.setprofile(before)
        names.extend(functions)
