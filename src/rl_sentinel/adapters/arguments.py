"""What a function of the user's own is passed: parameter name to column, in the form that name has in use."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.binding import NAMES
from rl_sentinel.adapters.layout import token_rewards
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.errors import Unbindable

#: Names by which frameworks pass labels as a numpy array of strings, and masks as whole numbers.
LABELS, COUNTED = ("index", "uid", "uids"), ("response_mask", "eos_mask")


@dataclass(frozen=True, slots=True)
class _Role:
    names: tuple[str, ...]
    reads: tuple[str, ...]


#: What is passed -> the names that ask for it, and the columns that it is made of.
ROLES: Mapping[str, _Role] = {
    "token rewards": _Role(
        ("token_level_rewards", "token_rewards", "token_level_scores"), ("reward", "token_reward", "length")
    ),
    "reward": _Role(("reward", "rewards", "score", "scores", "outcome", "outcomes"), ("reward",)),
    "mask": _Role(NAMES["mask"], ("mask",)),
    "group": _Role((*NAMES["group"], "uids", "groups", "group_id"), ("group",)),
    "one": _Role((*NAMES["gamma"], *NAMES["lambda"]), ()),
} | {
    role: _Role(NAMES[role], (column,))
    for role, column in (
        ("values", "value"),
        ("value_prediction", "value"),
        ("old_value", "old_value"),
        ("rollout_logprob", "rollout_logprob"),
        ("per_token", "advantage"),
        ("logprob", "logprob"),
        ("old_logprob", "old_logprob"),
        ("ref_logprob", "ref_logprob"),
        ("advantage", "advantage"),
        ("returns", "returns"),
        ("reward_baseline", "reward_baseline"),
    )
}

_ROLE = {name: role for role, about in ROLES.items() for name in about.names}


def reads(function: Callable[..., Any], passed: Collection[str] = ()) -> frozenset[str]:
    """The columns that a function's parameters are made of; those in ``passed`` are numbers.

    Raises:
        Unbindable: if a parameter without a default has a name that is not known.
    """
    return frozenset(c for _, role, _ in _asked(function, passed) for c in ROLES[role].reads)


def arguments(function: Callable[..., Any], batch: Batch, passed: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Keyword arguments for a function, numbers in ``passed``; a parameter of an unknown name keeps its default.

    Raises:
        Unbindable: if a parameter without a default has a name that is not known.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.batch import batch_of
        >>> from rl_sentinel.adapters.arguments import arguments
        >>> arguments(lambda rewards, index: rewards, batch_of(torch.ones(1, 2)))
        {'rewards': tensor([0.]), 'index': array(['prompt-0'], dtype=object)}
    """
    more = passed or {}
    made = {n: _made(role, n, annotation, batch) for n, role, annotation in _asked(function, more)}
    return {**made, **more}


def described(given: Mapping[str, Any]) -> str:
    """One line: each parameter, what it was passed, its kind where it is no tensor, and its shape."""
    roles = _roles(given)
    return ", ".join(f"{n}={_column(roles[n])}{_form(x)}" if n in roles else f"{n}={x}" for n, x in given.items())


def _column(role: str) -> str:
    """The column that a role is, or the role's name where it is made of none or several."""
    made_of = ROLES[role].reads
    return made_of[0] if len(made_of) == 1 else role


def _roles(names: Iterable[str]) -> dict[str, str]:
    """The roles of the names that have one; values beside predicted ones are those of the old policy."""
    found = {name: _ROLE[name] for name in names if name in _ROLE}
    if "value_prediction" not in found.values():
        return found
    return {name: "old_value" if role == "values" else role for name, role in found.items()}


def _form(value: object) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    return f" as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else ""


def _asked(function: Callable[..., Any], passed: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Name, role and annotation of each parameter that is passed a column."""
    parameters = inspect.signature(inspect.unwrap(function)).parameters
    roles = _roles(parameters)
    if unpassable := _unpassable(parameters):
        raise Unbindable(f"{getattr(function, '__qualname__', function)} {unpassable}")
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in passed:
            continue
        if name in roles:
            yield name, roles[name], "" if parameter.annotation is parameter.empty else str(parameter.annotation)
        elif parameter.default is parameter.empty:
            near = get_close_matches(name, _ROLE, n=3, cutoff=0.0)
            message = (
                f"{getattr(function, '__qualname__', function)} wants {name!r}, expected names of known roles, "
                f"as in {', '.join(near)} (docs/own-functions.md): rename it, or give it a default"
            )
            raise Unbindable(message)


def _unpassable(parameters: Mapping[str, inspect.Parameter]) -> str:
    """Why a function cannot be called by the names of its parameters, whatever they are; empty where it can."""
    first = next(iter(parameters), "")
    if first == "self" and first not in _ROLE:
        return (
            "is a method, which wants an object: name a function of the module that makes one and calls it, "
            "as in def mine(rewards, mask): return K().m(rewards, mask)"
        )
    alone = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if alone:
        return f"takes {', '.join(alone)} by position only, expected parameters passed by name: drop the / behind them"
    if parameters and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        taken = ", ".join(str(p) for p in parameters.values())
        return f"takes {taken}, expected parameters by name: name them, or keep a wrapped function's by functools.wraps"
    return ""


def _made(role: str, name: str, annotation: str, batch: Batch) -> object:
    if role == "one":
        return 1.0
    if role == "token rewards":
        return token_rewards(batch)
    column: Tensor = getattr(batch, ROLES[role].reads[0])
    if role == "group" and _wants_numpy(name, annotation):
        return np.array([f"prompt-{g}" for g in column.tolist()], dtype=object)
    return column.to(torch.int64) if name in COUNTED else column


def _wants_numpy(name: str, annotation: str) -> bool:
    said = annotation.lower()
    return "ndarray" in said or (name in LABELS and "tensor" not in said)
