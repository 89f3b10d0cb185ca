"""The table of parameter names: which role a parameter has, whatever a framework calls it."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rl_sentinel.adapters.binding import NAMES
from rl_sentinel.core.codec import Codec

_ROLE = {name: role for role, names in NAMES.items() for name in names}


def by_role(function: Callable[..., Any], codecs: Mapping[str, Codec]) -> dict[str, Codec]:
    """An argument for each parameter whose role has a codec; the others keep their defaults."""
    return {name: codecs[_ROLE[name]] for name in _parameters(function) if _ROLE.get(name) in codecs}


@cache
def takes(function: Callable[..., Any], role: str) -> bool:
    """Whether a parameter of the function has this role."""
    return any(_ROLE.get(name) == role for name in _parameters(function))


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(inspect.unwrap(function)).parameters
