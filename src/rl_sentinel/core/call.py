"""Describe calls as data: the function, its arguments, and where results are read."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Use:
    """A reference to a value of an earlier step, or to a part of that value.

    ``name`` is the name of a step (for its return value) or of a step's parameter (for the argument after the call).
    ``path`` is the sequence of attribute names and keys from the value to the part.

    Example:
        >>> from rl_sentinel.core.call import Use
        >>> place = Use("data").attribute("batch")["advantages"]
        >>> print(place)
        data.batch['advantages']
    """

    name: str
    path: tuple[str | int | tuple[str], ...] = ()

    def __getitem__(self, key: str | int) -> "Use":
        """The item ``key`` of the value."""
        return Use(self.name, (*self.path, (key,) if isinstance(key, str) else key))

    def attribute(self, name: str) -> "Use":
        """The attribute ``name`` of the value."""
        return Use(self.name, (*self.path, name))

    def __str__(self) -> str:
        """The reference as a Python expression."""
        return self.name + "".join(self._step(step) for step in self.path)

    @staticmethod
    def _step(step: str | int | tuple[str]) -> str:
        if isinstance(step, str):
            return f".{step}"
        return f"[{step[0]!r}]" if isinstance(step, tuple) else f"[{step}]"

    def follow(self, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value of the target
        """Return the object that this reference names.

        Raises:
            LookupError: if no earlier step has a value with this name, or a key or position is missing.
            AttributeError: if an attribute is missing.
        """
        value = values[self.name]
        for step in self.path:
            if isinstance(step, str):
                value = getattr(value, step)
            else:
                value = value[step[0] if isinstance(step, tuple) else step]
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One invocation of a function, class or method; its arguments are values, ``Call`` or ``Use`` objects.

    ``function`` is a dotted path, a method of an earlier value, or a Python function of this package. A ``shared`` call
    is made once per target and equal arguments, because a run has one configuration for all its steps.
    """

    function: str | Use | Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the target that is passed as an argument, by its dotted path."""

    path: str


def same_value(a: Any, b: Any) -> bool:  # noqa: ANN401, PLR0911 - any argument of a call; one line per kind
    """Whether two arguments are equal; for tensors and arrays: the same dtype, shape and numbers.

    NaN equals NaN. Objects are equal when they have the same type and equal attributes.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.call import same_value
        >>> same_value({"a": [torch.ones(2)]}, {"a": [torch.ones(2)]}), same_value([1], (1,))
        (True, False)
    """
    if a is b:
        return True
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        both = isinstance(a, Tensor) and isinstance(b, Tensor)
        return both and a.dtype == b.dtype and same_numbers(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and same_value(a.tolist(), b.tolist()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return bool(a == b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, type | bool | int | str | None) or inspect.isroutine(a):
        return bool(a == b)
    return same_value(_parts(a), _parts(b))


def _parts(value: Any) -> dict[Any, Any]:  # noqa: ANN401 - any object
    """The items of a mapping, the parts of a partial call, or the attributes of another object."""
    if callable(getattr(value, "items", None)):
        return dict(value.items())
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    names = getattr(type(value), "__slots__", ())
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return slots | getattr(value, "__dict__", {})


def same_numbers(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape and numbers; NaN equals NaN, and dtypes may differ."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
