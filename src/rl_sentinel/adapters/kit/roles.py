"""Find the role of a parameter by its name, and bind parameters by their roles."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.core.codec import Codec

_ROLE = {name: role for role, about in ROLES.items() for name in about.names}


def role_of(name: str) -> str:
    """The role of a parameter name; empty if it has none."""
    return _ROLE.get(name, "")


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """The roles of the parameters of one function; names without a role are left out.

    ``values`` beside predicted values are those of the old policy.

    Example:
        >>> from rl_sentinel.adapters.kit.roles import roles_of
        >>> roles_of(["vpreds", "values", "colour"])
        {'vpreds': 'value_prediction', 'values': 'old_value'}
    """
    roles = {name: _ROLE[name] for name in names if name in _ROLE}
    if "value_prediction" not in roles.values():
        return roles
    return {name: "old_value" if role == "values" else role for name, role in roles.items()}


def similar_names(name: str) -> list[str]:
    """The three known names that are most similar to this one."""
    return get_close_matches(name, _ROLE, n=3, cutoff=0.0)


def by_role(function: Callable[..., Any], codecs: Mapping[str, Codec]) -> dict[str, Codec]:
    """Parameter -> codec of its role; parameters without a codec keep their defaults."""
    return {name: codecs[_ROLE[name]] for name in parameters_of(function) if _ROLE.get(name) in codecs}


@cache
def takes(function: Callable[..., Any], role: str) -> bool:
    """Whether the function has a parameter with this role."""
    return any(_ROLE.get(name) == role for name in parameters_of(function))


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, after its decorators are unwrapped; without the object of a method."""
    return inspect.signature(function).parameters
