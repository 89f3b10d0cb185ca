"""Messages about the arguments of a user's function: unknown parameter names, passed values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from rl_sentinel.adapters.kit.bind_text import BINDINGS
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.roles import ROLES, role_of, similar_names
from rl_sentinel.core.codec import Codec


def unknown_message(function: str, unknown: list[str]) -> str:
    """One line about all parameters whose names are unknown, with a suggestion for ``bind``."""
    suggested = ", ".join(f'"{path}": "{_suggestion(path)}"' for path in unknown)
    names = ", ".join(map(repr, unknown))
    return (
        f"{function} has the parameter{'s' if len(unknown) > 1 else ''} {names} of unknown name: bind each of them, as "
        f"in bind={{{suggested}}} (a column, COLUMN[AXES], a number, or a function of the batch; docs/own-functions.md)"
    )


def _suggestion(path: str) -> str:
    near = similar_names(path.rpartition(".")[2])[0]
    role = role_of(near)
    return BINDINGS.get(role) or ROLES[role].column or "reward"


def describe_arguments(codecs: Mapping[str, Codec], passed: Mapping[str, Any]) -> str:
    """One line with the column, the type (if not a tensor) and the shape of each argument."""
    return ", ".join(f"{name}={_describe(codecs[name], value)}" for name, value in passed.items())


def _describe(codec: Codec, value: object) -> str:
    if not codec.columns:
        return f"int{list(value.shape)}" if isinstance(value, Tensor) else " ".join(str(value).split())[:40]
    if isinstance(codec, Container):
        return f"{{{', '.join(f'{n}={_describe(p, codec.get(value, n))}' for n, p in codec.parts.items())}}}"
    column = "token_rewards" if len(codec.columns) > 1 else next(iter(codec.columns))
    if isinstance(value, Tensor):
        return f"{column}{list(value.shape)}"
    if isinstance(value, list):
        return f"{column} as a list of {len(value)}"
    return f"{column} as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else column
