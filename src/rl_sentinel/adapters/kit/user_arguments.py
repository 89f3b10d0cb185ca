"""What a user's function is passed: a codec for each parameter, by its name and annotation."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.codecs import Column, PromptIds
from rl_sentinel.adapters.kit.reward_codecs import TokenRewards
from rl_sentinel.adapters.kit.roles import ROLES, parameters_of, role_of, roles_of, similar_names
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.core.codec import Codec
from rl_sentinel.core.errors import Unbindable

#: Names by which frameworks pass labels as a numpy array of strings, and masks as whole numbers.
LABELS, COUNTED = ("index", "uid", "uids"), ("response_mask", "eos_mask")


def arguments_by_name(function: Callable[..., Any], numbers: Mapping[str, float]) -> dict[str, Codec]:
    """A codec for each parameter of a known name; ``numbers`` are passed as they are, other defaults stay.

    Raises:
        Unbindable: if the function cannot be called by name, or a parameter without a default has an unknown name.

    Example:
        >>> from rl_sentinel.adapters.kit.user_arguments import arguments_by_name
        >>> arguments_by_name(lambda rewards, index: rewards, {})
        {'rewards': Column(name='reward', form=PerRow(kind='tensor'), dtype=None, leaf=False), \
'index': PromptIds(form='strings', column='group')}
    """
    name_of_function = getattr(function, "__qualname__", function)
    parameters = parameters_of(function)
    if reason := _not_callable_by_name(parameters):
        raise Unbindable(f"{name_of_function} {reason}")
    roles = roles_of(parameters)
    codecs: dict[str, Codec] = {}
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if name in numbers:
            codecs[name] = Constant(numbers[name])
        elif codec := _codec(name, roles.get(name, ""), parameter.annotation):
            codecs[name] = codec
        elif parameter.default is parameter.empty:
            raise Unbindable(
                f"{name_of_function} has the parameter {name!r}, expected a known name such as "
                f"{', '.join(similar_names(name))} (docs/own-functions.md): rename it, or give it a default"
            )
    return codecs


def _codec(name: str, role: str, annotation: object) -> Codec | None:
    if role in ("gamma", "lambda"):
        return Constant(1.0)
    if role == "token_rewards":
        return TokenRewards()
    if role == "group":
        words = "" if annotation is inspect.Parameter.empty else str(annotation).lower()
        is_array = "ndarray" in words or (name in LABELS and "tensor" not in words)
        return PromptIds("strings" if is_array else "tensor")
    if role not in ROLES or not ROLES[role].column or role == "pi_squared":
        return None
    return Column(ROLES[role].column, dtype=torch.int64 if name in COUNTED else None)


def _not_callable_by_name(parameters: Mapping[str, inspect.Parameter]) -> str:
    """Why a function cannot be called by the names of its parameters; empty where it can."""
    if next(iter(parameters), "") == "self" and not role_of("self"):
        return (
            "is a method, expected a function: name a function of the module that makes the object and calls it, "
            "as in def mine(rewards, mask): return K().m(rewards, mask)"
        )
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if positional:
        return f"takes {', '.join(positional)} by position only, expected parameters by name: remove the / behind them"
    if parameters and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        taken = ", ".join(str(p) for p in parameters.values())
        return f"takes {taken}, expected parameters by name: name them, or keep a wrapped function's by functools.wraps"
    return ""


def describe_arguments(codecs: Mapping[str, Codec], passed: Mapping[str, Any]) -> str:
    """One line: each parameter, its column, its kind where it is not a tensor, and its shape."""
    return ", ".join(f"{name}={_described(codecs[name], value)}" for name, value in passed.items())


def _described(codec: Codec, value: object) -> str:
    if not codec.columns:
        return str(value)
    column = "token_rewards" if len(codec.columns) > 1 else next(iter(codec.columns))
    if isinstance(value, Tensor):
        return f"{column}{list(value.shape)}"
    return f"{column} as numpy{list(value.shape)}" if isinstance(value, np.ndarray) else column
