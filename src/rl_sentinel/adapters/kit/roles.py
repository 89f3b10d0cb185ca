"""Find the role of a parameter by its name (what it holds, such as ``advantage``), and bind parameters by role."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from rl_sentinel.adapters.kit.parameter_names import ROLES
from rl_sentinel.adapters.kit.parameter_words import role_of_words
from rl_sentinel.core.codec import Codec

_ROLE = {name: role for role, about in ROLES.items() for name in about.names}


#: Prefixes and suffixes that users add to a known name, such as ``mb_`` for a mini-batch, or ``_tensor``.
_AFFIXES = re.compile(r"^(?:mb|minibatch|b|batch|batched)_|_(?:mb|batch|tensor|t|bool)$")


def role_of(name: str) -> str:
    """The role of a parameter name, from the table or by its words; empty if the name is unknown.

    Example:
        >>> from rl_sentinel.adapters.kit.roles import role_of
        >>> role_of("advantages"), role_of("mb_advantages"), role_of("color")
        ('advantage', 'advantage', '')
    """
    return _named(name) or _named(_AFFIXES.sub("", name))


def _named(name: str) -> str:
    return _ROLE.get(name) or role_of_words(name)


def role_inside(outer: str, name: str) -> str:
    """The role of a key, by the name of its dict and its name together, such as ``reference_logprobs``.

    Empty if the combined name is unknown, or if the dict is a batch.

    Example:
        >>> from rl_sentinel.adapters.kit.roles import role_inside
        >>> role_inside("reference", "logprobs"), role_inside("mb", "logprobs")
        ('ref_logprob', '')
    """
    whole = f"{outer}_{name}"
    return "" if not outer or _AFFIXES.match(whole) else role_of(whole)


def roles_of(names: Iterable[str]) -> dict[str, str]:
    """The roles of the parameters of one function; names without a role are left out.

    If there are predicted values too, ``values`` are the values before the update.

    Example:
        >>> from rl_sentinel.adapters.kit.roles import roles_of
        >>> roles_of(["vpreds", "values", "color"])
        {'vpreds': 'value_prediction', 'values': 'old_value'}
    """
    roles = {name: role for name in names if (role := role_of(name))}
    if "value_prediction" not in roles.values():
        return roles
    return {name: "old_value" if role == "values" else role for name, role in roles.items()}


def similar_names(name: str) -> list[str]:
    """The three known names that are most similar to a name."""
    return get_close_matches(name, _ROLE, n=3, cutoff=0.0)


def by_role(function: Callable[..., Any], codecs: Mapping[str, Codec]) -> dict[str, Codec]:
    """Parameter -> the codec of its role; parameters whose role has no codec are left out, and keep their defaults."""
    return {name: codecs[role] for name in parameters_of(function) if (role := _named(name)) in codecs}


@cache
def takes(function: Callable[..., Any], role: str) -> bool:
    """Whether the function has a parameter with this role."""
    return any(_named(name) == role for name in parameters_of(function))


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, after its decorators are unwrapped; without the object of a method."""
    return inspect.signature(function).parameters
