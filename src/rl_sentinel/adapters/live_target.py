"""Use a function object of this process as a target: closures, lambdas, methods, partials, notebook functions."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import Unbindable


@dataclass(slots=True, kw_only=True)
class LiveTarget(Target):
    """The gate to one ``function``, which is known as ``path``; ``root`` is the folder of its source file."""

    function: Callable[..., Any]
    path: str

    def holds(self, path: str) -> bool:
        """Whether it is the function."""
        return path == self.path

    def located(self, path: str) -> str:
        """The path itself."""
        return path

    def find(self, path: str) -> Any:  # noqa: ANN401 - as the base class
        """The function.

        Raises:
            Unbindable: for another path.
        """
        if path != self.path:
            raise Unbindable(f"{path} is absent, expected {self.path}")
        return self.function

    def source(self, function: Callable[..., Any]) -> tuple[str, int]:
        """File and line of the function; a cell of a notebook has a name of its own.

        Raises:
            Unbindable: if it has no Python code.
        """
        code = code_of(function)
        if code is None:
            raise Unbindable(f"{self.path} has no Python code, expected a function of yours")
        file = Path(code.co_filename)
        inside = file.is_absolute() and file.is_relative_to(self.root)
        return (str(file.relative_to(self.root)) if inside else file.name), code.co_firstlineno


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a partial, a method, a decorator or a callable object calls."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not isinstance(function, type):
            function = type(function).__call__
        else:
            return function


def code_of(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - a code object
    """The code of a function; None of one that is not written in Python."""
    return getattr(bare(function), "__code__", None)


def live_target(function: Callable[..., Any]) -> LiveTarget:
    """The gate to a function of this process.

    Raises:
        Unbindable: if it is not callable, or not written in Python.
    """
    code = code_of(function) if callable(function) else None
    if code is None:
        raise Unbindable(f"function is {function!r}, expected a Python function, method, lambda or partial")
    file = Path(code.co_filename)
    known = file.is_absolute() and file.is_file()
    root = file.parent.resolve() if known else Path.cwd()
    called = _awaited(function) if inspect.iscoroutinefunction(function) else function
    return LiveTarget(root=root, files=frozenset({code.co_filename}), function=called, path=path_of(function))


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """An async function as one that returns its result."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
        return asyncio.run(function(*args, **kwargs))

    return run


def path_of(function: Callable[..., Any]) -> str:
    """The name of a function in reports, as ``module.name``."""
    named = bare(function)
    module = getattr(named, "__module__", "") or ""
    name = getattr(named, "__qualname__", type(function).__name__).replace("<locals>.", "")
    return f"{module}.{name}" if module else name


def spec_of(function: Callable[..., Any]) -> str:
    """``module:name`` of a function that another process can import; empty for a lambda, a closure, a method."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    importable = inspect.isfunction(function) and module and module != "__main__" and name.isidentifier()
    return f"{module}:{name}" if importable else ""
