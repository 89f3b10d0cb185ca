"""A function with some of its text replaced; `repair` puts this module beside a corrected package."""

import __future__

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any


def replaced(owner: Any, name: str, changes: Mapping[str, str]) -> Callable[..., Any]:  # noqa: ANN401 - class or module
    """The function ``name`` of a class or a module, compiled again among the names of its module.

    Raises:
        AssertionError: if a text is not in it.
    """
    function = inspect.unwrap(getattr(owner, name))
    source = textwrap.dedent(inspect.getsource(function))
    for text, other in changes.items():
        if text not in source:
            message = f"{owner.__name__}.{name} has no {text!r}"
            raise AssertionError(message)
        source = source.replace(text, other)
    made: dict[str, Callable[..., Any]] = {}
    lines = ["" if line.startswith("@") else line for line in source.splitlines()]
    # An audit finds functions by their file and first line; annotations may name imports for type checkers alone.
    above = "\n" * (function.__code__.co_firstlineno - 1)
    file = inspect.getfile(function)
    code = compile(above + "\n".join(lines), file, "exec", __future__.annotations.compiler_flag)
    exec(code, vars(sys.modules[function.__module__]), made)  # noqa: S102 - a correction of ours
    made[name].__qualname__ = function.__qualname__
    return made[name]
