"""Detect which arguments the target's functions change in place."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.call import same_value

#: How deep tensors are searched for in lists, dicts and objects with a dict named ``batch``.
_DEPTH = 3

#: An argument's name, the argument itself, and its values on entry.
_Snapshot = tuple[str, Tensor, Tensor]


@dataclass(slots=True)
class Watch:
    """A recorder that compares each tensor argument of a call with a copy made on entry.

    ``changed`` maps the names of parameter and function to the values before and after. Numeric NumPy arrays are
    compared too. Calls that raise an exception are ignored.
    """

    target: Target
    changed: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    _open: list[list[_Snapshot]] = field(default_factory=list)

    def entering(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copy all tensor arguments."""
        arguments = _arguments_by_name(self.target.find(path), args, kwargs)
        short = path.rpartition(".")[2]
        tensors = (pair for name, value in arguments.items() for pair in _tensors(name, value, _DEPTH))
        self._open.append([(f"{name} of {short}", x, x.detach().clone()) for name, x in tensors])

    def returned(self) -> None:
        """Record the arguments that changed."""
        for name, now, before in self._open.pop():
            if not same_value(before, now):
                self.changed.setdefault(name, (before, now.detach().clone()))


@lru_cache(maxsize=512)
def _signature(function: Any) -> inspect.Signature:  # noqa: ANN401 - any callable
    return inspect.signature(function)


def _arguments_by_name(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    try:
        return dict(_signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a builtin without a signature, or a call with wrong arguments
        return {str(number): value for number, value in enumerate(args)} | kwargs


def _tensors(name: str, value: Any, depth: int) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401
    if isinstance(value, Tensor):
        if value.layout == torch.strided and not value.is_nested:
            yield name, value
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf" and value.flags.writeable:
            yield name, torch.from_numpy(value)
    elif depth and isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _tensors(f"{name}[{number}]", part, depth - 1)
    elif depth and not isinstance(value, type) and callable(getattr(value, "items", None)):
        for key, part in value.items():
            yield from _tensors(f"{name}[{key}]", part, depth - 1)
    elif depth and not isinstance(value, type) and callable(getattr(getattr(value, "batch", None), "items", None)):
        yield from _tensors(f"{name}.batch", value.batch, depth)
