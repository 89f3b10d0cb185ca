"""A digest of a boundary's description: equal digests mean equal calls and equal judgment in two processes."""

import enum
import functools
import hashlib
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from rl_sentinel.adapters.stand_ins import StandIn
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary

#: Most objects in one description; hashing more would take longer than checking the boundary.
_MOST = 100_000

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_BY_REPR = (torch.dtype, torch.device, torch.Size, np.dtype, range, slice, PurePath)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)
_DESCRIPTORS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType)


class _UndescribableError(Exception):
    """Raised for an object with a state that cannot be read."""


def description_digest(boundary: Boundary, by_path: Mapping[str, Boundary]) -> str:
    """The digest of a boundary and of its alternatives; empty if a part cannot be read, or if there are too many parts.

    Functions of this package are hashed with their closures. Functions of the target are hashed by name only, because
    their code is recorded when they are entered.
    """
    walk = _Walk()
    try:
        for one in (boundary, *(by_path[path] for path in boundary.alternatives if path in by_path)):
            walk.add(one)
    except (_UndescribableError, RecursionError):
        return ""
    return walk.total.hexdigest()[:32]


class _Walk:
    """A walk through objects. An object is hashed when it is met first; after that, only its number is hashed."""

    def __init__(self) -> None:
        self.total = hashlib.sha256()
        self.numbers: dict[int, int] = {}
        self.alive: list[object] = []

    def add(self, value: Any) -> None:  # noqa: ANN401 - any part of a boundary
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            self.note(type(value).__name__, repr(value))
            return
        if id(value) in self.numbers:
            self.note("again", str(self.numbers[id(value)]))
            return
        self.numbers[id(value)] = len(self.numbers)
        self.alive.append(value)
        if len(self.alive) > _MOST:
            raise _UndescribableError
        for kinds, visit in _VISITS:
            if isinstance(value, kinds):
                visit(self, value)
                return
        self.add_state(value)

    def note(self, *words: str) -> None:
        for word in words:
            self.total.update(f"{len(word)}:{word}".encode(errors="surrogatepass"))

    def add_all(self, kind: str, values: Any) -> None:  # noqa: ANN401 - an iterable
        self.note(kind)
        for value in values:
            self.add(value)
        self.note("end")

    def add_mapping(self, kind: str, mapping: Mapping[Any, Any]) -> None:
        self.add_all(kind, (part for item in mapping.items() for part in item))

    def add_state(self, value: Any) -> None:  # noqa: ANN401 - an object with attributes
        """Hash an instance of a Python class: its type, attributes and slots.

        Raises:
            _UndescribableError: if the object has neither attributes nor slots.
        """
        kind = type(value)
        slots = [name for base in kind.__mro__ for name in _names(vars(base).get("__slots__", ()))]
        state = {name: getattr(value, name) for name in slots if name not in _NO_STATE and hasattr(value, name)}
        attributes = getattr(value, "__dict__", None)
        if attributes is None and "__slots__" not in vars(kind):
            raise _UndescribableError
        self.note("object")
        self.add(kind)
        self.add_mapping("state", state | dict(attributes or {}))


#: Slots that hold no state.
_NO_STATE = ("__dict__", "__weakref__")


def _names(slots: Any) -> tuple[str, ...]:  # noqa: ANN401 - a name or several
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _of_this_package(thing: Any) -> bool:  # noqa: ANN401 - a function or class
    return str(getattr(thing, "__module__", "")).startswith("rl_sentinel.")


def _function(walk: _Walk, function: types.FunctionType) -> None:
    walk.note("function", function.__module__ or "", function.__qualname__)
    if not _of_this_package(function):
        return
    walk.note(str(function.__code__.co_firstlineno))
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != types.CellType()]
    walk.add_all("closure", (*cells, function.__defaults__, function.__kwdefaults__, vars(function)))


def _class(walk: _Walk, kind: type) -> None:
    walk.note("class", kind.__module__, kind.__qualname__)
    if _of_this_package(kind) and "<locals>" in kind.__qualname__:
        members = {name: member for name, member in vars(kind).items() if not isinstance(member, _DESCRIPTORS)}
        walk.add_all("bases", kind.__bases__)
        walk.add_mapping("members", members)


def _set(walk: _Walk, values: set[Any] | frozenset[Any]) -> None:
    """Hash a set of plain values; other objects have no order that is equal in two processes."""
    if not all(isinstance(v, (str, int, float, bool, type(None), tuple, enum.Enum)) for v in values):
        raise _UndescribableError
    walk.add_all("set", sorted(values, key=repr))


def _tensor(walk: _Walk, tensor: torch.Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided or tensor.is_meta:
        raise _UndescribableError
    walk.note("tensor", str(tensor.dtype), str(list(tensor.shape)), str(tensor.requires_grad))
    walk.total.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _array(walk: _Walk, array: np.ndarray[Any, Any]) -> None:
    walk.note("array", str(array.dtype), str(array.shape))
    if array.dtype.hasobject:
        walk.add_all("items", array.reshape(-1).tolist())
    else:
        walk.total.update(array.tobytes())


def _sequence(walk: _Walk, values: Any) -> None:  # noqa: ANN401 - a tuple or list
    walk.add_all(type(values).__qualname__, values)
    if getattr(values, "__dict__", None):
        walk.add_mapping("state", vars(values))


def _mapping(walk: _Walk, mapping: Any) -> None:  # noqa: ANN401 - a dict or a view of one
    walk.add_mapping(type(mapping).__qualname__, mapping)
    if getattr(mapping, "__dict__", None):
        walk.add_mapping("state", vars(mapping))


def _bound_method(walk: _Walk, method: types.MethodType) -> None:
    walk.add_all("method", (method.__self__, method.__func__))


def _partial(walk: _Walk, value: functools.partial[Any]) -> None:
    walk.add_all("partial", (value.func, value.args, value.keywords))


def _wrapped(walk: _Walk, value: Any) -> None:  # noqa: ANN401 - a static or class method, or a cached function
    walk.add_all(type(value).__name__, (value.__wrapped__,))


def _property(walk: _Walk, value: property) -> None:
    walk.add_all("property", (value.fget, value.fset, value.fdel))


def _by_repr(walk: _Walk, value: Any) -> None:  # noqa: ANN401 - a value that its text describes fully
    walk.note(type(value).__qualname__, repr(value))


def _by_name(walk: _Walk, value: Any) -> None:  # noqa: ANN401 - a module or built-in function
    walk.note("name", getattr(value, "__module__", None) or "", getattr(value, "__qualname__", value.__name__))


def _enum(walk: _Walk, member: enum.Enum) -> None:
    walk.note("enum", type(member).__module__, type(member).__qualname__, member.name)


def _pattern(walk: _Walk, pattern: re.Pattern[Any]) -> None:
    walk.note("pattern", repr(pattern.pattern), str(pattern.flags))


def _target(walk: _Walk, _target: Target) -> None:
    walk.note("target")


def _stand_in(walk: _Walk, stand_in: StandIn) -> None:
    walk.note("stand-in", repr(stand_in))


#: (Types, function that hashes a value of these types); the first match is used.
_VISITS: tuple[tuple[Any, Callable[[_Walk, Any], None]], ...] = (
    (StandIn, _stand_in),
    (Target, _target),
    (enum.Enum, _enum),
    (torch.Tensor, _tensor),
    (np.ndarray, _array),
    ((np.generic, *_BY_REPR), _by_repr),
    ((types.GenericAlias, types.UnionType, typing._GenericAlias, typing._SpecialForm, typing.TypeVar), _by_repr),  # type: ignore[attr-defined]  # noqa: SLF001 - the types of annotations have no public name
    (type, _class),
    (types.FunctionType, _function),
    (types.MethodType, _bound_method),
    (functools.partial, _partial),
    ((staticmethod, classmethod, functools._lru_cache_wrapper), _wrapped),  # noqa: SLF001 - the type of a cached function
    (property, _property),
    ((*_BUILT_IN, types.ModuleType), _by_name),
    (re.Pattern, _pattern),
    ((tuple, list), _sequence),
    ((dict, types.MappingProxyType), _mapping),
    ((set, frozenset), _set),
)
