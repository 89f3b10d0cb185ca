"""Error messages about a user function's arguments: unknown parameter names, and the passed values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from rl_sentinel.adapters.kit.bind_text import BINDINGS
from rl_sentinel.adapters.kit.containers import Container
from rl_sentinel.adapters.kit.roles import ROLES, role_of, similar_names
from rl_sentinel.core.codec import Codec


def unknown_message(function: str, unknown: list[str]) -> str:
    """One line on all parameters of unknown names, with a proposal for ``bind``."""
    proposed = ", ".join(f'"{path}": "{_proposal(path)}"' for path in unknown)
    names = ", ".join(map(repr, unknown))
    return (
        f"{function} has the parameter{'s' if len(unknown) > 1 else ''} {names} of unknown name: say what each is, as "
        f"in bind={{{proposed}}} (a column, COLUMN[AXES], a number, or a function of the batch; docs/own-functions.md)"
    )


def _proposal(path: str) -> str:
    near = similar_names(path.rpartition(".")[2])[0]
    role = role_of(near)
    return BINDINGS.get(role) or ROLES[role].column or "reward"


def describe_arguments(codecs: Mapping[str, Codec], passed: Mapping[str, Any]) -> str:
    """One line: each parameter, its column, its kind where it is not a tensor, and its shape."""
    return ", ".join(f"{name}={_described(codecs[name], value)}" for name, value in passed.items())


def _described(codec: Codec, value: object) -> str:
    if not codec.columns:
        return f"int{list(value.shape)}" if isinstance(value, Tensor) else " ".join(str(value).split())[:40]
    if isinstance(codec, Container):
        return f"{{{', '.join(f'{n}={_described(p, codec.get(value, n))}' for n, p in codec.parts.items())}}}"
    column = "token_rewards" if len(codec.columns) > 1 else next(iter(codec.columns))
    if isinstance(value, Tensor):
        return f"{column}{list(value.shape)}"
    if isinstance(value, list):
        return f"{column} as a list of {len(value)}"
    return f"{column} as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else column
