"""Names of a recipe become functions, with the recipe's numbers filled in."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.core.modules import defined
from rl_sentinel.train.recipe import Named, nearest


def found_in(
    table: str, named: Named, package: ModuleType, attribute: str, given: frozenset[str]
) -> Callable[..., Any]:
    """What a module of a package defines, chosen by the module's name, or something of one's own by its place.

    Raises:
        SentinelError: one line on a name or a number that is unknown, missing or of another kind.
    """
    known = defined(package, attribute)
    if ":" not in named.name and named.name not in known:
        raise SentinelError(f"{table}.name {named.name!r} is unknown{nearest(named.name, list(known))}")
    function = imported(f"{table}.name", named.name) if ":" in named.name else known[named.name]
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
    return filled(table, known[named.name], named.numbers, given)


def read_by(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of a function that must be given when it is called.

    Example:
        >>> from rl_sentinel.signal.advantage import remax
        >>> from rl_sentinel.train.naming import read_by
        >>> sorted(read_by(remax.advantages))
        ['live', 'reward', 'reward_baseline']
    """
    parameters = inspect.signature(function).parameters.items()
    return frozenset(n for n, p in parameters if p.default is inspect.Parameter.empty)


def imported(key: str, place: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What ``pkg.module:name`` or ``file.py:name`` names.

    Raises:
        SentinelError: if it cannot be imported; what its code raises when imported is told in its words.

    Example:
        >>> from rl_sentinel.train.naming import imported
        >>> imported("path", "rl_sentinel.signal.path:loss_ready").__name__
        'loss_ready'
    """
    module, _, name = place.rpartition(":")
    try:
        if not module.endswith(".py"):
            return getattr(importlib.import_module(module), name)
        spec = importlib.util.spec_from_file_location(Path(module).stem, module)
        if spec is None or spec.loader is None:
            raise ImportError(f"no module at {module}")  # noqa: TRY301 - told with the others
        found = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
        if not hasattr(found, name):
            spec.loader.exec_module(found)
        return getattr(found, name)
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError, NameError) as error:
        way = "name pkg.module:name or file.py:name"
        raise SentinelError(f"{key} {place!r} cannot be imported ({error}): {way}") from error


def filled(
    table: str, function: Callable[..., Any], numbers: Mapping[str, Any], given: frozenset[str]
) -> Callable[..., Any]:
    """A function with a recipe's numbers filled in; ``given`` are the parameters that are no numbers.

    Raises:
        SentinelError: if a number is unknown, missing, or of another kind than the function says.

    Example:
        >>> from rl_sentinel.train.naming import filled
        >>> def scaled(reward: float, *, factor: float) -> float:
        ...     return reward * factor
        >>> filled("estimator", scaled, {"factor": 2.0}, frozenset({"reward"}))(3.0)
        6.0
    """
    parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n not in given}
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
        words = "numbers, as [1.0, 0.5]" if _is_tensor(kind) else f"a {getattr(kind, '__name__', kind)}"
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


def _require_kind(key: str, value: object, kind: object) -> None:
    fits: Sequence[type] = {bool: (bool,), int: (int,), float: (float, int), str: (str,)}.get(kind, ())  # type: ignore[call-overload]
    if fits and (not isinstance(value, tuple(fits)) or (isinstance(value, bool) and kind is not bool)):
        raise SentinelError(f"{key} is {value!r}, expected a {kind.__name__}")  # type: ignore[attr-defined]  # of the four
