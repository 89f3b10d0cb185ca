"""Doubles for the package math_verify, whose time limits work in the main thread of a process alone."""

import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import local
from types import ModuleType
from typing import Any

#: Whether this thread stands for the main thread of another process.
_PROCESS = local()


class TimeoutException(Exception):  # noqa: N818 - the name in math_verify
    """A time limit of the package that was exceeded."""


class Extraction:
    """What is extracted from a text: here, always boxed answers."""

    def __init__(self, *_about: object, **_more: object) -> None:
        """Accept any options."""


def limit_time(seconds: float | None) -> None:
    """Ask for a time limit, as the package does: by a signal.

    Raises:
        ValueError: in a thread that cannot set the handler of a signal.
    """
    if seconds is not None and not getattr(_PROCESS, "main", False):
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))


def parse(text: str, *_targets: object, parsing_timeout: float | None = 5, **_about: object) -> list[str]:
    """The boxed answers of a text."""
    limit_time(parsing_timeout)
    return re.findall(r"\\boxed\{([^{}]*)\}", text)


def verify(gold: str, answer: str, *_about: object, timeout_seconds: float | None = 5, **_more: object) -> bool:
    """Whether an answer is the right one."""
    limit_time(timeout_seconds)
    return gold == answer


def math_metric(*_about: object, **_more: object) -> Callable[..., tuple[float, Any]]:
    """A function of right answers and texts: the score, and what was extracted."""

    def score(golds: Sequence[str], texts: Sequence[str]) -> tuple[float, Any]:
        pairs = [(gold, parse(text)) for gold in parse(golds[0]) for text in texts]
        return float(any(verify(gold, one) for gold, found in pairs for one in found)), None

    return score


class Pool:
    """A pool of processes, each of which has a main thread; a task runs at once."""

    def submit(self, function: Callable[..., Any], *arguments: object) -> "Future[Any]":
        """The result of the function, or its exception."""
        future: Future[Any] = Future()
        _PROCESS.main = True
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - as a pool, for the caller
            future.set_exception(error)
        finally:
            _PROCESS.main = False
        return future


def _module(name: str, **members: object) -> Callable[[], ModuleType]:
    def make() -> ModuleType:
        module = ModuleType(name)
        vars(module).update(members)
        return module

    return make


#: Modules of the package.
MATH_VERIFY = {
    "math_verify.errors": _module("math_verify.errors", TimeoutException=TimeoutException),
    "math_verify.grader": _module("math_verify.grader", verify=verify),
    "math_verify.metric": _module("math_verify.metric", math_metric=math_metric),
    "math_verify.parser": _module(
        "math_verify.parser", parse=parse, ExprExtractionConfig=Extraction, LatexExtractionConfig=Extraction
    ),
}
