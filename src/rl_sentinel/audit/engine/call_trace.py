"""Which functions of the target's tree a call entered."""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any


@contextmanager
def entered(root: Path, files: Collection[str] = ()) -> Iterator[list[str]]:
    """Collect ``file:line:qualified name`` of each function under ``root`` once, by first call; filled on exit.

    ``files`` are names of code that is in no file, such as cells of a notebook.
    """
    base = str(root.resolve()) + "/"
    found: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - the interpreter's
        code = frame.f_code
        if event == "call" and (code.co_filename.startswith(base) or code.co_filename in files):
            found[f"{code.co_filename.removeprefix(base)}:{code.co_firstlineno}:{code.co_qualname}"] = None

    names: list[str] = []
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield names
    finally:
        sys.setprofile(before)
        names.extend(found)
