"""Validate arguments (scalars, strings, functions, cells of tensors) with one-line errors; the checks can be off."""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened

#: True if the signal library checks its arguments; ``RL_SENTINEL_CHECKS=0`` in the environment turns the checks off.
CHECKED = os.environ.get("RL_SENTINEL_CHECKS", "1") != "0"


def refuse_where(wrong: Tensor, describe: Callable[[list[int]], str]) -> None:
    """Raise an ``InputError`` for the first position where ``wrong`` is True, unless checks are off.

    ``describe`` receives this position, as one index per axis, and returns the message.

    Raises:
        InputError: with the message of ``describe``.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.argument_checks import refuse_where
        >>> refuse_where(torch.tensor([False, True]), lambda index: f"length{index} is -1, expected 0 or more")
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: length[1] is -1, expected 0 or more
    """
    if CHECKED and bool(wrong.any()):
        raise InputError(describe(torch.nonzero(wrong)[0].tolist()))


def is_number(value: Any) -> bool:  # noqa: ANN401 - the type is checked here
    """Whether a value is a real number of Python or NumPy, or a scalar tensor; NaN and infinity count as numbers.

    These do not count: a bool, a Python integer of absolute value 2**63 or more (tensors cannot be compared with it),
    and a tensor that requires a gradient (settings have no gradient) or is on the meta device.

    Example:
        >>> from rl_sentinel.core.argument_checks import is_number
        >>> is_number(0.5), is_number("0.5"), is_number(True), is_number(2**64)
        (True, False, False, False)
    """
    if isinstance(value, Tensor):
        plain = value.dim() == 0 and not value.is_complex() and value.dtype != torch.bool
        return plain and not value.requires_grad and not value.is_meta
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**63
    return isinstance(value, float | np.integer | np.floating)


def number(name: str, value: object) -> None:
    """Require a real number.

    Raises:
        InputError: with a message that names the parameter and its value.

    Example:
        >>> from rl_sentinel.core.argument_checks import number
        >>> number("reward", [0.5])
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: reward is [0.5], expected a number
    """
    if not is_number(value):
        raise InputError(f"{name} is {shortened(value)}, expected {_expected_number(value)}")


def _expected_number(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "a number whose absolute value is below 2**63"
    if isinstance(value, Tensor) and value.dim() == 0 and value.requires_grad:
        return "a number without a gradient: detach it"
    return "a number"


def one_of(name: str, value: object, words: Sequence[str]) -> None:
    """Require one of several strings.

    Raises:
        InputError: with a message that names the parameter, its value, and the allowed strings.

    Example:
        >>> from rl_sentinel.core.argument_checks import one_of
        >>> one_of("over", "min", ("sum", "mean"))
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: over is 'min', expected one of sum, mean
    """
    if not (isinstance(value, str) and value in words):
        raise InputError(f"{name} is {shortened(value)}, expected one of {', '.join(words)}")


def function(name: str, value: object) -> None:
    """Require a callable with a readable signature.

    Raises:
        InputError: with a message that names the parameter and its value.

    Example:
        >>> from rl_sentinel.core.argument_checks import function
        >>> function("estimator", "grpo")
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: estimator is 'grpo', expected a function whose parameters can be read
    """
    try:
        inspect.signature(value)  # type: ignore[arg-type]  # this call finds out whether it is callable
    except (TypeError, ValueError) as error:
        # A partial function with an argument that its function does not take.
        hint = "write a Python function that calls it"
        why = f": {error.__cause__ if isinstance(error.__cause__, TypeError) else hint}" if callable(value) else ""
        raise InputError(
            f"{name} is {shortened(value)}, expected a function whose parameters can be read{why}"
        ) from None


def takes(name: str, value: Callable[..., Any], columns: int, *named: str) -> None:
    """Require a function that accepts ``columns`` positional arguments and the keywords ``named``.

    Raises:
        InputError: with a message that names the parameter, the call, and the reason why the call fails.

    Example:
        >>> from rl_sentinel.core.argument_checks import takes
        >>> takes("bounds[0]", lambda weight, high: weight, 1, "mask")
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: bounds[0] cannot be called, expected a function f(column, mask=...): missing a required argument: 'high'
    """  # noqa: E501 - a message is one line
    function(name, value)
    try:
        inspect.signature(value).bind(*[None] * columns, **dict.fromkeys(named))
    except TypeError as error:
        call = ", ".join([*["column"] * columns, *(f"{word}=..." for word in named)])
        raise InputError(f"{name} cannot be called, expected a function f({call}): {error}") from None


def by_name(name: str, value: Callable[..., Any]) -> None:
    """Require a function with at least one named parameter, and without positional-only parameters.

    Raises:
        InputError: with a message that names the parameter.

    Example:
        >>> from rl_sentinel.core.argument_checks import by_name
        >>> by_name("loss", lambda reward, /: reward)
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: loss takes reward by position only, expected a parameter that has a name: drop the `/`, or wrap the function
    """  # noqa: E501 - a message is one line
    function(name, value)
    kinds = {p.name: p.kind for p in inspect.signature(value).parameters.values()}
    for parameter, kind in kinds.items():
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InputError(
                f"{name} takes {parameter} by position only, expected a parameter that has a name: drop the `/`, "
                "or wrap the function"
            )
    if not {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY} & set(kinds.values()):
        hint = "columns are passed by name (pass a module's forward; decorate a wrapper with functools.wraps)"
        raise InputError(f"{name} has no named parameter, expected named parameters: {hint}")


def unmapped(*columns: Tensor) -> None:
    """Raise an error for columns that ``torch.vmap`` maps: argument checks cannot read batched values.

    Raises:
        InputError: if a column is mapped, also inside derivatives of ``torch.func``.

    Example:
        >>> import torch
        >>> from rl_sentinel.core.argument_checks import unmapped
        >>> unmapped(torch.ones(2))
    """
    layers = torch._C._functorch  # noqa: SLF001 - torch has no public function for it
    for column in columns:
        inner = column
        while layers.is_functorch_wrapped_tensor(inner):
            if layers.is_batchedtensor(inner):
                hint = "its values cannot be read there (call the function once per element)"
                raise InputError(f"a column is mapped by torch.vmap, expected plain tensors: {hint}")
            inner = layers.get_unwrapped(inner)
