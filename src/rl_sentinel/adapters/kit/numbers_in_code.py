"""Numbers that a user's function reads by a known name from somewhere else than its parameters."""

import dis
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import ismethod
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.live_target import unwrap

#: Levels of configuration objects, as in ``self.config.algorithm.clip_eps``.
_DEPTH = 3

_SCALARS = (bool, int, float)


def named_numbers(function: Callable[..., Any], passed: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Name -> number, for known names that the code reads from ``self``, a configuration, a global or a closure.

    Variables to which the code assigns a literal count too. A name with two values is left out. The code is read and
    not run.

    Args:
        function: the function; the functions of its module and the methods of its object that it names are read too.
        passed: objects that are passed as they are, by parameter.

    Example:
        >>> from types import SimpleNamespace
        >>> from rl_sentinel.adapters.kit.numbers_in_code import named_numbers
        >>> CLIP_EPS = 0.3
        >>> def loss(args, ratio): return ratio.clamp(1 - CLIP_EPS, 1 + args.eps_clip_high)
        >>> sorted(named_numbers(loss, {"args": SimpleNamespace(eps_clip_high=0.5, gamma=0.9)}).items())
        [('clip_eps', 0.3), ('eps_clip_high', 0.5)]
    """
    owner, plain = _owner(function), unwrap(function)
    functions = list(_read_functions(plain, owner))
    words = frozenset[str]().union(*(_words(f.__code__) for f in functions))
    values: dict[str, set[float]] = {}
    for name, value in _values(functions, words, [owner, *(passed or {}).values()]):
        if role_of(name.lower()) and isinstance(value, int | float) and not isinstance(value, bool):
            values.setdefault(name.lower(), set()).add(float(value))
    return {name: next(iter(choices)) for name, choices in values.items() if len(choices) == 1}


def literals(function: Callable[..., Any]) -> tuple[float, ...]:
    """The float literals of a function, of the functions of its module that it names, and of their defaults.

    Floats that the code reads by name, from a global or from its object, count too.
    """
    found: dict[float, None] = {}
    owner = _owner(function)
    functions = list(_read_functions(unwrap(function), owner))
    words = frozenset[str]().union(*(_words(f.__code__) for f in functions))
    found |= {value: None for _, value in _values(functions, words, [owner]) if isinstance(value, float)}
    for one in functions:
        constants = [c for code in _codes(one.__code__) for x in code.co_consts for c in _parts(x)]
        for value in (*constants, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()):
            if isinstance(value, float):
                found[value] = None
    return tuple(found)


def literal_bounds(function: Callable[..., Any]) -> frozenset[tuple[float, float]]:
    """The pairs of literals that the code passes one after the other, as in ``clamp(ratio, 1 - 0.2, 1.3)``.

    Example:
        >>> from rl_sentinel.adapters.kit.numbers_in_code import literal_bounds
        >>> def loss(ratio): return ratio.clamp(1 - 0.25, 1.5)
        >>> literal_bounds(loss)
        frozenset({(0.75, 1.5)})
    """
    found = set[tuple[float, float]]()
    for one in _read_functions(unwrap(function), _owner(function)):
        steps = [step for code in _codes(one.__code__) for step in dis.get_instructions(code)]
        pairs = [(a.argval, b.argval) for a, b in pairwise(steps) if a.opname == b.opname == "LOAD_CONST"]
        found |= {(a, b) for a, b in pairs if isinstance(a, float) and isinstance(b, float)}
    return frozenset(found)


def _parts(constant: object) -> tuple[object, ...]:
    return constant if isinstance(constant, tuple) else (constant,)


def _owner(function: Callable[..., Any]) -> object:
    """The object whose method the function is, or which is called itself; None for a plain function."""
    while isinstance(function, partial):
        function = function.func
    if ismethod(function):
        return function.__self__
    return None if isinstance(function, FunctionType) else function


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _words(code: CodeType) -> frozenset[str]:
    """All names, and the strings that may be keys of a configuration."""
    codes = list(_codes(code))
    texts = {c for one in codes for c in one.co_consts if isinstance(c, str) and c.isidentifier()}
    return frozenset(texts).union(*((*one.co_names, *one.co_freevars) for one in codes))


def _read_functions(plain: Callable[..., Any], owner: object) -> Iterator[FunctionType]:
    """The function, and the functions of its module and methods of its object that it names, and so on."""
    waiting, known = [plain], set[int]()
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, FunctionType) or id(one) in known:
            continue
        known.add(id(one))
        yield one
        for word in sorted(_words(one.__code__)):
            other = one.__globals__.get(word)
            if isinstance(other, FunctionType) and other.__module__ == one.__module__:
                waiting.append(other)
            if owner is not None and isinstance(method := getattr(type(owner), word, None), FunctionType):
                waiting.append(method)


def _values(
    functions: list[FunctionType], words: frozenset[str], objects: list[object]
) -> Iterator[tuple[str, object]]:
    for one in functions:
        yield from ((word, one.__globals__[word]) for word in words if word in one.__globals__)
        yield from _assigned(one.__code__)
        for name, cell in zip(one.__code__.co_freevars, one.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # an empty cell
                continue
    for thing in objects:
        yield from _of_object(thing, words, _DEPTH)


def _assigned(code: CodeType) -> Iterator[tuple[str, object]]:
    """The literals of variables that the code assigns once, as in ``gamma, lam = 0.99, 0.95``.

    ``eps`` is left out: it may be a clip range or the offset of a divisor.
    """
    stored: list[str] = []
    literal, values = dict[str, object](), list[object]()
    for step in dis.get_instructions(code):
        if step.opname.startswith(("STORE_FAST", "STORE_DEREF")):
            names = [step.argval] if isinstance(step.argval, str) else [*step.argval]  # Python 3.13 joins two
            stored += names
            literal |= dict(zip(names, values, strict=False))
            values = values[len(names) :]
        elif step.opname == "UNPACK_SEQUENCE" and values and isinstance(values[0], tuple):
            values = [*values[0]]
        else:
            values = [step.argval] if step.opname == "LOAD_CONST" else []
    yield from ((n, x) for n, x in literal.items() if stored.count(n) == 1 and role_of(n.lower()) != "epsilon")


def _of_object(thing: object, words: frozenset[str], depth: int) -> Iterator[tuple[str, object]]:
    """The values of attributes or keys that the code names, of an object and of the objects in them."""
    for word, value in _entries(thing, words):
        yield word, value
        closed = isinstance(value, (*_SCALARS, str, Tensor, nn.Module, ModuleType, type, FunctionType))
        if depth > 1 and value is not None and not closed and not ismethod(value):
            yield from _of_object(value, words, depth - 1)


def _entries(thing: object, words: frozenset[str]) -> Iterator[tuple[str, object]]:
    if isinstance(thing, Mapping):
        yield from ((str(word), thing[word]) for word in words if word in thing)
        return
    inside = getattr(thing, "__dict__", {})
    for word in words:
        value = inside.get(word, getattr(type(thing), word, None)) if thing is not None else None
        if value is not None:
            yield word, value
