"""What a function of the user's own is passed: parameter name to column, in the form that name has in use."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.errors import Unbindable
from rl_sentinel.frameworks.binding import NAMES
from rl_sentinel.frameworks.layout import token_rewards

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
    column: _Role(NAMES[role], (column,))
    for role, column in (
        ("values", "value"),
        ("logprob", "logprob"),
        ("old_logprob", "old_logprob"),
        ("ref_logprob", "ref_logprob"),
        ("advantage", "advantage"),
        ("returns", "returns"),
        ("reward_baseline", "reward_baseline"),
    )
}

_ROLE = {name: role for role, about in ROLES.items() for name in about.names}


def reads(function: Callable[..., Any]) -> frozenset[str]:
    """The columns that a function's parameters are made of.

    Raises:
        Unbindable: if a parameter without a default has a name that is not known.
    """
    return frozenset(c for name, _ in _asked(function) for c in ROLES[_ROLE[name]].reads)


def arguments(function: Callable[..., Any], batch: Batch) -> dict[str, Any]:
    """Keyword arguments for a function; a parameter of an unknown name keeps its default.

    Raises:
        Unbindable: if a parameter without a default has a name that is not known.

    Example:
        >>> from rl_sentinel.core.batch import batch_of
        >>> arguments(lambda rewards, index: rewards, batch_of(torch.ones(1, 2)))
        {'rewards': tensor([0.]), 'index': array(['prompt-0'], dtype=object)}
    """
    return {name: _made(_ROLE[name], name, annotation, batch) for name, annotation in _asked(function)}


def described(given: Mapping[str, Any]) -> str:
    """One line: each parameter, what it was passed, its kind where it is no tensor, and its shape."""
    return ", ".join(f"{name}={_ROLE[name]}{_form(value)}" for name, value in given.items())


def _form(value: object) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    return f" as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else ""


def _asked(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    for name, parameter in inspect.signature(inspect.unwrap(function)).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name in _ROLE:
            yield name, "" if parameter.annotation is parameter.empty else str(parameter.annotation)
        elif parameter.default is parameter.empty:
            near = get_close_matches(name, _ROLE, n=3, cutoff=0.0)
            message = (
                f"{getattr(function, '__qualname__', function)} wants {name!r}, expected names of known roles, "
                f"as in {', '.join(near)} (docs/own-functions.md): rename it, or give it a default"
            )
            raise Unbindable(message)


def _made(role: str, name: str, annotation: str, batch: Batch) -> object:
    if role == "one":
        return 1.0
    if role == "token rewards":
        return token_rewards(batch)
    column: Tensor = getattr(batch, role)
    if role == "group" and _wants_numpy(name, annotation):
        return np.array([f"prompt-{g}" for g in column.tolist()], dtype=object)
    return column.to(torch.int64) if name in COUNTED else column


def _wants_numpy(name: str, annotation: str) -> bool:
    said = annotation.lower()
    return "ndarray" in said or (name in LABELS and "tensor" not in said)
