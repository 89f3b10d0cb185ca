"""Decide whether an exception is an accident in the target's code or was raised on purpose."""

import dis
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

import rl_sentinel

#: The bytecode instruction of ``raise`` and ``assert``.
_RAISE = dis.opmap["RAISE_VARARGS"]

#: Exceptions of the machine or the environment; they say nothing about the input.
_ENVIRONMENT = (ImportError, MemoryError, OSError)

#: Exceptions that a library raises for an argument that it does not accept: the caller made the mistake.
_ACCIDENTS = (LookupError, TypeError, AttributeError, RuntimeError)

#: The folder of this package, which includes adapters and replacement functions.
_OURS = f"{Path(rl_sentinel.__file__).parent.resolve()}/"


class Origin(NamedTuple):
    """The origin of an exception.

    Attributes:
        accident: ``file:line`` of the target's innermost frame, if the exception is an accident of the target; else
            empty: if a ``raise`` or ``assert`` raised it on purpose, without a frame of the target, or if the
            environment caused it (``ImportError``, ``OSError``). A ``TypeError``, ``LookupError``,
            ``AttributeError`` or ``RuntimeError`` that a library raises is an accident of the target.
        on_purpose: whether a ``raise`` or ``assert`` of the target raised it, unless the environment caused it.
    """

    accident: str = ""
    on_purpose: bool = False


def origin_of(error: Exception, root: Path) -> Origin:
    """The origin of an exception that left a target under ``root``.

    An exception from a function of this package that the target calls is not an accident of the target.
    """
    base = f"{root.resolve()}/"
    frames = [*_frames(error.__traceback__)]
    of_target = [n for n, (frame, _, _) in enumerate(frames) if _file(frame).startswith(base)]
    if not of_target or isinstance(error, _ENVIRONMENT):
        return Origin()
    last = of_target[-1]
    if any(_file(frame).startswith(_OURS) for frame, _, _ in frames[last + 1 :]):
        return Origin()
    innermost, _, instruction = frames[-1]
    if innermost.f_code.co_code[instruction] == _RAISE:
        if last == len(frames) - 1:
            return Origin(on_purpose=True)
        if not isinstance(error, _ACCIDENTS):
            return Origin()
    frame, line, _ = frames[last]
    return Origin(f"{_file(frame).removeprefix(base)}:{line}")


def _frames(traceback: TracebackType | None) -> list[tuple[FrameType, int, int]]:
    """Frame, line and last instruction of each traceback entry, outermost first."""
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame, traceback.tb_lineno, traceback.tb_lasti))
        traceback = traceback.tb_next
    return frames


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename
