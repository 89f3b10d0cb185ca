"""Audit a function object of this process: closures, lambdas, methods, partials, notebook functions."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.core.phrasing import shortened


@dataclass(slots=True, kw_only=True)
class LiveTarget(Target):
    """A target with a single ``function``; ``path`` is its name in reports, ``root`` the folder above its package."""

    function: Callable[..., Any]
    path: str

    def contains(self, path: str) -> bool:
        """Whether the path is the path of the function."""
        return path == self.path

    def locate(self, path: str) -> str:
        """The path, unchanged: nothing is relocated."""
        return path

    def find(self, path: str) -> Any:  # noqa: ANN401 - as the base class
        """The function.

        Raises:
            Unbindable: if ``path`` is not the path of the function.
        """
        if path != self.path:
            raise Unbindable(f"{path} is absent, expected {self.path}")
        return self.function

    def source(self, function: Callable[..., Any]) -> tuple[str, int]:
        """File (relative to the root) and line of the function; outside of the root, only the name of the file or cell.

        Raises:
            Unbindable: if the function is not written in Python.
        """
        code = code_of(function)
        if code is None:
            raise Unbindable(f"{self.path} has no Python code, expected a Python function")
        file = Path(code.co_filename)
        inside = file.is_absolute() and file.is_relative_to(self.root)
        return (str(file.relative_to(self.root)) if inside else file.name), code.co_firstlineno


def forward_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The ``forward`` of a module or compiled module, because the module itself takes any arguments.

    Other functions are returned unchanged.
    """
    if not isinstance(function, nn.Module):
        return function
    module: nn.Module = getattr(function, "_orig_mod", function)
    return module.forward


def unwrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function inside a partial, a method, a decorated function or a callable object."""
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
    """The code object of a function, or None if it is not written in Python."""
    return getattr(unwrap(function), "__code__", None)


def live_target(function: Callable[..., Any]) -> LiveTarget:
    """The target for a function of this process.

    Raises:
        Unbindable: if it is not callable, is not written in Python, fails when its attributes are read, or is a partial
            with arguments that its function does not take.
    """
    try:
        code = code_of(function) if callable(function) else None
        shown = shortened(function) if code is None else ""
        signature(function) if code is not None else None
    except Exception as error:
        raise Unbindable(_unreadable(function, error)) from error
    if code is None:
        fix = ": pass a lambda that calls it" if callable(function) else ""
        if isinstance(function, type) and any("__call__" in vars(kind) for kind in function.__mro__):
            fix = f": pass an object of this class, such as {function.__name__}()"
        raise Unbindable(f"function is {shown}, expected a Python function, method or lambda, or a partial of one{fix}")
    file = Path(code.co_filename)
    known = file.is_absolute() and file.is_file()
    root = (
        _folder_above_package(file.resolve(), getattr(unwrap(function), "__module__", "") or "")
        if known
        else Path.cwd()
    )
    called = _synchronous(function) if inspect.iscoroutinefunction(function) else function
    return LiveTarget(root=root, files=frozenset({code.co_filename}), function=called, path=path_of(function))


def _folder_above_package(file: Path, module: str) -> Path:
    """The folder from which ``module`` is imported; the folder of the file if its folders have other names."""
    folder = file.parent
    for package in reversed(module.split(".")[:-1]):
        if folder.name != package:
            return file.parent
        folder = folder.parent
    return folder


def _unreadable(function: object, error: Exception) -> str:
    """The reason why the parameters of a callable cannot be read, and how to fix this."""
    if isinstance(function, partial):
        stated = [
            *map(shortened, function.args),
            *(f"{name}={shortened(value)}" for name, value in function.keywords.items()),
        ]
        name = getattr(function.func, "__qualname__", type(function.func).__name__)
        return (
            f"function is a partial of {name} with {', '.join(stated)}, and {name} does not take all of them, expected "
            f"arguments for its parameters{_parameters(function.func)}: remove or rename those that do not fit"
        )
    kind, words = type(function).__name__, " ".join(str(error).split())
    return (
        f"function is an object of type {kind} whose attributes cannot be read ({type(error).__name__}: {words}), "
        f"expected a Python function: let its __getattr__ raise AttributeError, or pass a lambda that calls it"
    )


def _parameters(function: Callable[..., Any]) -> str:
    """The parameters of a function, in parentheses; empty if they cannot be read."""
    try:
        return f" ({', '.join(signature(function).parameters)})"
    except (TypeError, ValueError):
        return ""


def _synchronous(function: Callable[..., Any]) -> Callable[..., Any]:
    """A synchronous function that runs an async one to completion."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
        return asyncio.run(function(*args, **kwargs))

    return run


def path_of(function: Callable[..., Any]) -> str:
    """The name of a function in reports: ``module.name``, or the name alone if it has no module."""
    plain = unwrap(function)
    module = getattr(plain, "__module__", "") or ""
    name = getattr(plain, "__qualname__", type(function).__name__).replace("<locals>.", "")
    return f"{module}.{name}" if module else name


def spec_of(function: Callable[..., Any]) -> str:
    """``module:name`` if another process can import the function, else empty, as for a lambda or a method."""
    name, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", "")
    importable = inspect.isfunction(function) and module and module != "__main__" and name.isidentifier()
    return f"{module}:{name}" if importable else ""
