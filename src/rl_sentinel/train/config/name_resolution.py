"""Names of a recipe become functions, with the recipe's numbers filled in."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.train.config.recipe import Named, nearest
from rl_sentinel.train.config.user_code import Fits, imported, looked_at

#: Parameters that take whatever else is given; nothing is given for them.
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def found_in(  # noqa: PLR0913 - where it is named, where it is looked for, and what it takes and gives
    table: str, named: Named, package: ModuleType, attribute: str, given: frozenset[str], *, fits: Fits | None = None
) -> Callable[..., Any]:
    """What a module of a package defines, chosen by the module's name, or something of one's own by its place.

    ``fits`` is asked of what a function of one's own gives.

    Raises:
        SentinelError: one line on a name or a number that is unknown, missing or of another kind.
    """
    known = defined(package, attribute)
    if ":" not in named.name and named.name not in known:
        raise SentinelError(f"{table}.name {named.name!r} is unknown{nearest(named.name, list(known))}")
    function = imported(f"{table}.name", named.name) if ":" in named.name else known[named.name]
    function = looked_at(table, named.name, function, named.numbers, fits)
    return filled(table, function, named.numbers, given)


def function_of(
    table: str, named: Named, module: ModuleType, given: frozenset[str], *, reads: str = ""
) -> Callable[..., Any]:
    """A public function of a module, chosen by its name; of those that have a parameter ``reads``, where one is said.

    Raises:
        SentinelError: as for :func:`found_in`.
    """
    known = {n: f for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
    known = {n: f for n, f in known.items() if not n.startswith("_")}
    known = {n: f for n, f in known.items() if not reads or reads in inspect.signature(f).parameters}
    if named.name not in known:
        raise SentinelError(f"{table} {named.name!r} is unknown{nearest(named.name, list(known))}")
    function = looked_at(table, named.name, known[named.name], named.numbers, None)
    return filled(table, function, named.numbers, given)


def read_by(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of a function that must be given when it is called.

    Example:
        >>> from rl_sentinel.signal.advantage import remax
        >>> from rl_sentinel.train.config.name_resolution import read_by
        >>> sorted(read_by(remax.advantages))
        ['live', 'reward', 'reward_baseline']
    """
    parameters = inspect.signature(function).parameters.items()
    return frozenset(n for n, p in parameters if p.default is inspect.Parameter.empty and p.kind not in _REST)


def filled(
    table: str, function: Callable[..., Any], numbers: Mapping[str, Any], given: frozenset[str]
) -> Callable[..., Any]:
    """A function with a recipe's numbers filled in; ``given`` are the parameters that are no numbers.

    Raises:
        SentinelError: if a number is unknown, missing, or of another kind than the function says.

    Example:
        >>> from rl_sentinel.train.config.name_resolution import filled
        >>> def scaled(reward: float, *, factor: float) -> float:
        ...     return reward * factor
        >>> filled("estimator", scaled, {"factor": 2.0}, frozenset({"reward"}))(3.0)
        6.0
    """
    every = inspect.signature(function).parameters.items()
    parameters = {n: p for n, p in every if n not in given and p.kind not in _REST}
    for name in numbers:
        if name not in parameters:
            way = nearest(name, list(parameters)) if parameters else ", expected no numbers"
            raise SentinelError(f"{table}.{name} is unknown{way}")
    told = {name: _number(f"{table}.{name}", value, parameters[name].annotation) for name, value in numbers.items()}
    lacking = [n for n, p in parameters.items() if n not in numbers and p.default is inspect.Parameter.empty]
    if lacking:
        kind = parameters[lacking[0]].annotation
        if _is_column(kind):
            raise SentinelError(f"{table} wants {lacking[0]}, which this trainer does not make: choose another")
        if kind is inspect.Parameter.empty:
            way = "give it, or call it what the trainer gives"
            raise SentinelError(f"{table}.{lacking[0]} is missing, expected a value, it has no default: {way}")
        words = "numbers, as [1.0, 0.5]" if _is_tensor(kind) else _a(kind)
        raise SentinelError(f"{table}.{lacking[0]} is missing, expected {words}: it has no default")
    return partial(function, **told)


def _is_tensor(kind: object) -> bool:
    return "Tensor" in getattr(kind, "__name__", str(kind))


def _is_column(kind: object) -> bool:
    """Whether a tensor has an entry for each response or token, as ``Float[Tensor, "B"]`` says; else it is numbers."""
    axes = getattr(kind, "dim_str", "B")
    return _is_tensor(kind) and any(axis in ("B", "*S") for axis in axes.split())


def _number(key: str, value: object, kind: object) -> object:
    """A value of the recipe as the function wants it: a tensor of several numbers, or the number that it is."""
    if _is_tensor(kind):
        if not isinstance(value, tuple) or any(not isinstance(x, (int, float)) or isinstance(x, bool) for x in value):
            raise SentinelError(f"{key} is {value!r}, expected numbers, as [1.0, 0.5]")
        return torch.tensor(value, dtype=torch.get_default_dtype())
    _require_kind(key, value, kind)
    return value


def _a(kind: object) -> str:
    """The name of a kind, with its article."""
    word = str(getattr(kind, "__name__", kind))
    return f"{'an' if word[:1] in 'aeiou' else 'a'} {word}"


def _require_kind(key: str, value: object, kind: object) -> None:
    fits: Sequence[type] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}.get(kind, ())  # type: ignore[call-overload]
    if fits and (not isinstance(value, tuple(fits)) or (isinstance(value, bool) and kind is not bool)):
        raise SentinelError(f"{key} is {value!r}, expected {_a(kind)}")
