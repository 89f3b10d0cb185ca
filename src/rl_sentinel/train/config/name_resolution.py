"""Resolve a component's name to a function, and bind the recipe's parameters to it."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import ModuleType
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.core.phrasing import nearest, shortened
from rl_sentinel.train.config.settings import Component
from rl_sentinel.train.config.user_code import ResultCheck, import_object, wrap_function

#: Kinds of parameters that take any further arguments; the recipe sets none of them.
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def resolve_in_package(  # noqa: PLR0913 - the name, where to look for it, and the function's contract
    table: str,
    component: Component,
    package: ModuleType,
    attribute: str,
    columns: frozenset[str],
    *,
    check: ResultCheck | None = None,
) -> Callable[..., Any]:
    """Resolve ``name`` to ``attribute`` of the package's module of that name; a name with a colon is user code.

    Args:
        table: the recipe's table, for messages.
        component: the name and its parameters.
        package: the package of the shipped components.
        attribute: the name that each of its modules defines.
        columns: parameters that the trainer passes; the recipe may set the others.
        check: checks the result of user code.

    Raises:
        SentinelError: one line on a name that cannot be resolved, or on an invalid or missing parameter.
    """
    choices = defined(package, attribute)
    if ":" not in component.name and component.name not in choices:
        own = ", or file.py:function" if "." in component.name else ""
        known = nearest(component.name, list(choices))
        raise SentinelError(f"{table}.name {component.name!r} is unknown, {known}{own}")
    function = import_object(f"{table}.name", component.name) if ":" in component.name else choices[component.name]
    function = wrap_function(table, component.name, function, component.parameters, check)
    return bind_parameters(table, function, component.parameters, columns)


def resolve_in_module(
    table: str,
    component: Component,
    module: ModuleType,
    columns: frozenset[str],
    *,
    named: str = "*",
) -> Callable[..., Any]:
    """Resolve ``name`` to a public function of a module that needs no other columns; ``named`` is a pattern.

    Raises:
        SentinelError: as for :func:`resolve_in_package`.
    """
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
    public = {n: f for n, f in functions.items() if not n.startswith("_")}
    functions = {n: f for n, f in public.items() if fnmatchcase(n, named) and not _other_columns(f, columns)}
    if component.name not in functions:
        if component.name in public:
            choices = ", ".join(functions)
            raise SentinelError(f"{table} {component.name!r} is not available here, expected one of {choices}")
        raise SentinelError(f"{table} {component.name!r} is unknown, {nearest(component.name, list(functions))}")
    function = wrap_function(table, component.name, functions[component.name], component.parameters, None)
    return bind_parameters(table, function, component.parameters, columns)


def required_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters without a default, other than ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(function).parameters.items()
    return frozenset(n for n, p in parameters if p.default is inspect.Parameter.empty and p.kind not in _VARIADIC)


def _other_columns(function: Callable[..., Any], columns: frozenset[str]) -> list[str]:
    """The required columns of a function that are not among ``columns``."""
    parameters = inspect.signature(function).parameters
    return [n for n in required_parameters(function) - columns if _is_column(parameters[n].annotation)]


def bind_parameters(
    table: str, function: Callable[..., Any], values: Mapping[str, Any], columns: frozenset[str]
) -> Callable[..., Any]:
    """Bind a recipe's values to a function; ``columns`` are the parameters that the trainer passes.

    Raises:
        SentinelError: if a parameter is unknown or missing, or its value does not fit the annotation.
    """
    signature = inspect.signature(function).parameters.items()
    parameters = {n: p for n, p in signature if n not in columns and p.kind not in _VARIADIC}
    for name in values:
        if name in columns and name in inspect.signature(function).parameters:
            raise SentinelError(f"{table}.{name} is set, expected no value: the trainer passes this column; remove it")
        if name not in parameters:
            fix = nearest(name, parameters) if parameters else "expected no parameters: remove it"
            raise SentinelError(f"{table}.{name} is unknown, {fix}")
    bound = {name: _convert(f"{table}.{name}", value, parameters[name].annotation) for name, value in values.items()}
    missing = [n for n, p in parameters.items() if n not in values and p.default is inspect.Parameter.empty]
    if missing:
        kind = parameters[missing[0]].annotation
        if columns and _is_column(kind):
            fix = "rename the parameter of your function, or choose another function"
            if not hasattr(kind, "dim_str"):
                fix = f"rename the parameter, or set {table}.{missing[0]} to a list of numbers, such as [1.0, 0.5]"
            known = nearest(missing[0], sorted(columns))
            raise SentinelError(f"{table} needs column {missing[0]}, which the trainer does not have, {known}: {fix}")
        if kind is inspect.Parameter.empty:
            more = f"; if it is a column of the trainer, call it one of {', '.join(sorted(columns))}" if columns else ""
            fix = f"set it in the recipe{more}"
            if missing[0] == "ref_logprob" and missing[0] not in columns:
                fix = "remove this parameter of the function, and set the KL to the reference in [kl]"
            raise SentinelError(f"{table}.{missing[0]} is missing, expected a value: {fix}")
        expected = "a list of numbers, such as [1.0, 0.5]" if _is_tensor(kind) else _with_article(kind)
        raise SentinelError(f"{table}.{missing[0]} is missing, expected {expected}: set it in the recipe")
    return partial(function, **bound)


def _is_tensor(kind: object) -> bool:
    return "Tensor" in getattr(kind, "__name__", str(kind))


def _is_column(kind: object) -> bool:
    """Whether an annotation is a tensor per response or token, such as ``Float[Tensor, "B"]``, not a number list."""
    axes = getattr(kind, "dim_str", "B")
    return _is_tensor(kind) and any(axis in ("B", "*S") for axis in axes.split())


def _convert(key: str, value: object, kind: object) -> object:
    """Convert a list of numbers if the annotation is a tensor; check the value if it is bool, int, float or str."""
    if _is_tensor(kind):
        if not isinstance(value, tuple) or any(not isinstance(x, (int, float)) or isinstance(x, bool) for x in value):
            raise SentinelError(f"{key} is {shortened(value)}, expected a list of numbers, such as [1.0, 0.5]")
        return torch.tensor(value, dtype=torch.get_default_dtype(), device="cpu")
    kinds: Sequence[type] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}.get(kind, ())  # type: ignore[call-overload]
    if kinds and (not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and kind is not bool)):
        raise SentinelError(f"{key} is {shortened(value)}, expected {_with_article(kind)}")
    return value


def _with_article(kind: object) -> str:
    name = re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(getattr(kind, "__name__", kind)))
    name = name if name.isidentifier() else "value"
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
