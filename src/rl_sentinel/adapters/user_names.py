"""What happens at parameters of a user's function whose names are unknown: they are clear, or the user is asked."""

import inspect
from collections.abc import Callable
from typing import Any

from rl_sentinel.adapters.kit.argument_messages import unknown_message
from rl_sentinel.adapters.kit.documented_columns import documented_columns
from rl_sentinel.adapters.kit.evident_columns import evident_columns
from rl_sentinel.adapters.kit.layout_trial import leaves
from rl_sentinel.adapters.kit.parameter_codecs import Arguments
from rl_sentinel.adapters.kit.parameter_uses import plain_uses
from rl_sentinel.core.boundary import Stage


def evident_bindings(function: Callable[..., Any], stage: Stage, arguments: Arguments) -> dict[str, str]:
    """The bindings of all unknown parameters, if the column of each is clear; else empty, as for parts of an object."""
    if not inspect.isroutine(function) or any("." in one for one in arguments.unknown):
        return {}
    taken = frozenset[str]().union(*(codec.columns for codec in leaves(arguments.codecs.values())))
    found = evident_columns(function, stage, arguments.unknown, taken)
    return found if len(found) == len(arguments.unknown) else {}


def unknown_names(name: str, function: Callable[..., Any], arguments: Arguments) -> str:
    """The message that asks for a binding of each unknown parameter."""
    unknown = {path: path in arguments.attributes for path in arguments.unknown}
    documented = documented_columns(function, unknown)
    return unknown_message(name, unknown, leaves(arguments.codecs.values()), plain_uses(function), documented)
