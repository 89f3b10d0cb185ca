"""Find the functions and configuration objects that the code of a function reads."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import ismethod
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from torch import Tensor, nn

#: Levels of configuration objects, as in ``self.config.algorithm.clip_eps``.
DEPTH = 3


def owner_of(function: Callable[..., Any]) -> object:
    """The object of a method, or the callable object itself; None for a plain function.

    An async method is called through a synchronous function that wraps it.
    """
    while isinstance(function, partial) or (isinstance(function, FunctionType) and hasattr(function, "__wrapped__")):
        function = function.func if isinstance(function, partial) else function.__wrapped__
    if ismethod(function):
        return function.__self__
    return None if isinstance(function, FunctionType) else function


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of all functions that are defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


def words_of(code: CodeType) -> frozenset[str]:
    """The globals, attributes and free variables in the code, and strings that may be keys of a configuration."""
    codes = list(codes_of(code))
    texts = {c for one in codes for c in one.co_consts if isinstance(c, str) and c.isidentifier()}
    return frozenset(texts).union(*((*one.co_names, *one.co_freevars) for one in codes))


def read_functions(plain: Callable[..., Any], owner: object) -> Iterator[FunctionType]:
    """The function, and the functions of its module and the methods of ``owner`` or of classes that its code names.

    What these functions name is included too.
    """
    waiting: list[object] = [plain]
    known = set[int]()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, FunctionType) or id(one) in known:
            continue
        known.add(id(one))
        yield one
        words = sorted(words_of(one.__code__))
        named = [one.__globals__[word] for word in words if word in one.__globals__]
        waiting += [other for other in named if isinstance(other, FunctionType) and other.__module__ == one.__module__]
        classes = [*([] if owner is None else [type(owner)]), *(x for x in named if _is_namespace(x, one.__module__))]
        waiting += [getattr(kind, word, None) for kind in classes for word in words]


def values_of(thing: object, words: frozenset[str], depth: int) -> Iterator[tuple[str, object]]:
    """The attributes or keys that the code names, with their values, of an object and of the objects inside it.

    A value of an inner object is yielded under two names: ``low`` and ``clip_low`` for ``config.clip.low``.
    """
    for name, value in entries_of(thing, words):
        yield name, value
        if depth > 1 and not _has_no_settings(value):
            for inner, number in values_of(value, words, depth - 1):
                yield from ((inner, number), (f"{name}_{inner}", number))


def holders_of(thing: object, words: frozenset[str], depth: int, name: str = "") -> Iterator[tuple[str, object]]:
    """The object, and the objects in its attributes or keys that the code names; each object with its name."""
    yield name, thing
    for inner, value in entries_of(thing, words) if depth > 1 else ():
        if not _has_no_settings(value):
            yield from holders_of(value, words, depth - 1, inner)


def _has_no_settings(value: object) -> bool:
    """Whether an object is not searched for settings: a plain value, tensor, module, class or function."""
    kinds = (bool, int, float, str, Tensor, nn.Module, ModuleType, type, FunctionType, BuiltinFunctionType)
    return value is None or isinstance(value, kinds) or ismethod(value)


def _is_namespace(value: object, module: str) -> bool:
    """Whether an object is a class of this module; its attributes may be settings, as in ``class args: clip = 0.2``."""
    return isinstance(value, type) and value.__module__ == module and not issubclass(value, nn.Module)


def global_objects(functions: list[FunctionType], words: frozenset[str]) -> list[object]:
    """The configuration objects among the globals that the code reads, such as ``args`` in a script."""
    named = [
        (one.__module__, one.__globals__[word])
        for one in functions
        for word in sorted(words)
        if word in one.__globals__
    ]
    return [value for module, value in named if not _has_no_settings(value) or _is_namespace(value, module)]


def entries_of(thing: object, words: frozenset[str]) -> Iterator[tuple[str, object]]:
    """The keys of a mapping, or the attributes of an object, that are among the words, with their values.

    Attributes that are None are left out.
    """
    if isinstance(thing, Mapping):
        yield from ((str(word), thing[word]) for word in words if word in thing)
        return
    inside = getattr(thing, "__dict__", {})
    for word in words:
        value = inside.get(word, getattr(type(thing), word, None)) if thing is not None else None
        if isinstance(value, MemberDescriptorType):  # a slot
            value = getattr(thing, word, None)
        if value is not None:
            yield word, value
