"""Evaluate argument expressions: run nested calls and resolve references to earlier results."""

import importlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.call import Call, Function, Use


class StepResults(dict[str, Any]):
    """Results and keyword arguments of earlier steps, by name; results of ``remembered`` steps are copied when used."""

    __slots__ = ("remembered",)

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.remembered = set[str]()

    def use(self, reference: Use) -> Any:  # noqa: ANN401 - any value
        """The object to which a reference points, for use as an argument of a later step."""
        value = reference.follow(self)
        return _copied(value) if reference.name in self.remembered else value


def _copied(value: Any) -> Any:  # noqa: ANN401 - any value
    """A deep copy; plain tensors are cloned, which takes a tenth of the time of ``deepcopy``."""
    plain = type(value) is Tensor and not value.requires_grad and value.is_contiguous() and not vars(value)
    return value.clone() if plain else deepcopy(value)


def evaluate(target: Target, expression: Any, results: StepResults) -> Any:  # noqa: ANN401, PLR0911 - one line per kind
    """Evaluate an expression: run calls, follow references, find functions; also inside dicts, lists and tuples.

    A list that begins with a tensor or a number is plain data, and is returned unchanged.
    """
    kind = type(expression)
    if kind is Tensor:
        return expression
    if kind is Call:
        call = partial(_run_call, target, expression, results)
        return target.cached(_key(expression), call) if expression.shared else call()
    if kind is Use:
        return results.use(expression)
    if kind is Function:
        return target.find(expression.path)
    if kind is dict:
        return {key: evaluate(target, value, results) for key, value in expression.items()}
    if kind is list:
        plain = not expression or isinstance(expression[0], Tensor | float | int)
        return expression if plain else [evaluate(target, value, results) for value in expression]
    if kind is tuple:
        return tuple(evaluate(target, value, results) for value in expression)
    return expression


def _run_call(target: Target, call: Call, results: StepResults) -> Any:  # noqa: ANN401 - any result
    args = [evaluate(target, value, results) for value in call.args]
    kwargs = {name: evaluate(target, value, results) for name, value in call.kwargs.items()}
    return invoke(target, call.function, args, kwargs, results)


def _key(call: Call) -> tuple[Any, ...]:
    return ("shared", str(call.function), repr(call.args), repr(sorted(call.kwargs.items())))


def invoke(
    target: Target,
    function: str | Use | Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    results: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - any result
    """Call a function of the target, of a package, of an earlier result, or of this package."""
    if isinstance(function, str):
        if target.contains(function):
            return target.call(function, *args, **kwargs)
        return _import(function)(*args, **kwargs)
    return (function.follow(results) if isinstance(function, Use) else function)(*args, **kwargs)


def invoke_remembered(
    target: Target,
    function: str | Use | Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    results: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - any result
    """Like :func:`invoke`, but reuse the result of an earlier call with equal arguments.

    This saves time, because most laws change no argument of the step.

    While calls are recorded, the cache is not used.
    """
    if target.recorder is not None:
        return invoke(target, function, args, kwargs, results)
    key = ("remembered", str(function), tuple(map(_content, args)), tuple((n, _content(v)) for n, v in kwargs.items()))
    return target.cached(key, lambda: invoke(target, function, args, kwargs, results))


def _content(value: Any) -> Any:  # noqa: ANN401 - a tensor or a plain value
    if not isinstance(value, Tensor):
        return repr(value)
    bare = value.detach().contiguous()
    return (
        (bare.view(torch.uint8).numpy().tobytes(), str(bare.dtype), *bare.shape) if bare.numel() else tuple(bare.shape)
    )


def _import(path: str) -> Callable[..., Any]:
    """A function or class of an installed package: the standard library, torch, numpy, a dependency of the target."""
    module, _, name = path.rpartition(".")
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        function: Callable[..., Any] = reduce(getattr, (*parts[size:], name), value)
        return function
    raise ModuleNotFoundError(f"{path} cannot be imported, expected a function of the target or of a package")
