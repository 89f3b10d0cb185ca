"""Fakes for the package math_verify. Its time limits work only in the main thread of a process."""

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import local
from types import ModuleType
from typing import Any

from rl_sentinel.adapters.kit.replacement import installed_modules

#: Whether this thread stands for the main thread of another process.
_PROCESS = local()


class TimeoutException(Exception):  # noqa: N818 - the name in math_verify
    """A time limit of the package that was exceeded."""


class Extraction:
    """The kind of answer to extract from a text; the fake always extracts boxed answers."""

    def __init__(self, *_about: object, **_more: object) -> None:
        """Accept any options."""


def limit_time(seconds: float | None) -> None:
    """Fail in the threads in which the package's time limit fails; no time is limited.

    Nothing is done without ``seconds``, or in a task of :class:`Pool`.

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
    """Whether an answer is right."""
    limit_time(timeout_seconds)
    return gold == answer


def math_metric(*_about: object, **_more: object) -> Callable[..., tuple[float, Any]]:
    """A function that scores texts: 1 if one of their boxed answers is right, else 0."""

    def score(golds: Sequence[str], texts: Sequence[str]) -> tuple[float, Any]:
        pairs = [(gold, parse(text)) for gold in parse(golds[0]) for text in texts]
        return float(any(verify(gold, one) for gold, found in pairs for one in found)), None

    return score


class Pool:
    """A fake pool of processes; it runs each task at once."""

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


def _modules() -> dict[str, ModuleType]:
    """The package and its modules, by name."""
    members: dict[str, dict[str, object]] = {
        "errors": {"TimeoutException": TimeoutException},
        "grader": {"verify": verify},
        "metric": {"math_metric": math_metric},
        "parser": {"parse": parse, "ExprExtractionConfig": Extraction, "LatexExtractionConfig": Extraction},
    }
    package = ModuleType("math_verify")
    package.__path__ = []
    modules = {package.__name__: package}
    for name, own in members.items():
        module = ModuleType(f"math_verify.{name}")
        vars(module).update(own)
        setattr(package, name, module)
        modules[module.__name__] = module
    return modules


@contextmanager
def math_verify() -> Iterator[None]:
    """Install this fake in place of the package."""
    with installed_modules(_modules()):
        yield
