"""Read the output of a function that writes it into an argument and returns nothing."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.returned_names import returns_nothing
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.kit.user_layouts import FunctionCodec
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.core.call import Use
from rl_sentinel.core.codec import Codec


def written_argument(
    function: Callable[..., Any], word: str, codecs: Mapping[str, Codec], written: Mapping[str, list[str]]
) -> str:
    """The parameter into which a function writes its output.

    If trial calls do not show it, this is the only dict or object that the function gets. Empty if the function returns
    its output, or if no such parameter is found.

    Args:
        function: the function.
        word: the word that names the output.
        codecs: codec of each parameter.
        written: parameter -> the keys or attributes that the function set in it, in trial calls.
    """
    if not returns_nothing(function):
        return ""
    made = [name for name, codec in codecs.items() if isinstance(codec, FunctionCodec)]
    containers = [name for name, codec in codecs.items() if isinstance(codec, Container)] or made
    found = [name for name in containers if any(_means(word, key) for key in written.get(name, ()))]
    return found[0] if found else containers[0] if len(containers) == 1 else ""


def _means(word: str, key: str) -> bool:
    return word in key.lower() or role_of(key.lower()) in (word, f"{word}s")


def with_written_result(boundary: Boundary, parameter: str) -> Boundary:
    """Read the outputs of the boundary from this argument after the call; unchanged if ``parameter`` is empty."""
    if not parameter:
        return boundary
    return replace(boundary, outputs={name: replace(x, at=Use(parameter)) for name, x in boundary.outputs.items()})
