"""Read numbers from a user's code: ``self``, configurations, globals, closures, literals."""

import dis
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import pairwise
from types import CellType, CodeType, FunctionType, MemberDescriptorType
from typing import Any

from rl_sentinel.adapters.kit.read_objects import (
    DEPTH,
    codes_of,
    entries_of,
    global_objects,
    holders_of,
    owner_of,
    read_functions,
    values_of,
    words_of,
)
from rl_sentinel.adapters.kit.roles import role_of
from rl_sentinel.adapters.live_target import unwrap

#: Role of a number -> role of its partner: code that reads the number should read the partner too.
_PARTNERS = {"clip_high": "clip_low", "lambda": "gamma", "gamma": "lambda"}


def named_numbers(
    function: Callable[..., Any], passed: Mapping[str, Any] | None = None, unread: Collection[str] = ()
) -> dict[str, float]:
    """Name in lower case -> number, for known names that code reads from ``self``, a configuration, global or closure.

    Variables to which the code assigns a literal count too, and so does the unread partner of a number, such as the
    upper clip range. A name with two values is left out. The code is read and not run.

    Args:
        function: the function; the functions of its module and the methods of its object that it names are read too.
        passed: objects that are passed unchanged, by parameter.
        unread: roles of numbers that count although the code does not read them, because it should.

    Example:
        >>> from types import SimpleNamespace
        >>> from rl_sentinel.adapters.kit.numbers_in_code import named_numbers
        >>> CLIP_EPS = 0.3
        >>> def loss(args, ratio): return ratio.clamp(1 - CLIP_EPS, 1 + args.eps_clip_high)
        >>> sorted(named_numbers(loss, {"args": SimpleNamespace(eps_clip_high=0.5, gamma=0.9)}).items())
        [('clip_eps', 0.3), ('eps_clip_high', 0.5)]
    """
    owner, plain = owner_of(function), unwrap(function)
    functions = list(read_functions(plain, owner))
    words = frozenset[str]().union(*(words_of(f.__code__) for f in functions))
    values: dict[str, set[float]] = {}
    objects = [owner, *(passed or {}).values(), *global_objects(functions, words)]
    for name, value in (*_values(functions, words, objects), *_unread_partners(objects, words, unread)):
        if role_of(name.lower()) and isinstance(value, int | float) and not isinstance(value, bool):
            values.setdefault(name.lower(), set()).add(float(value))
    return {name: next(iter(choices)) for name, choices in values.items() if len(choices) == 1}


def set_numbers(function: Callable[..., Any], passed: Mapping[str, Any], numbers: Mapping[str, float]) -> list[str]:
    """Set numbers where the code reads them, and return the names of the changed numbers.

    An upper clip range is also set next to a lower clip range that the code reads.

    It writes to ``self``, its configurations, globals and closures, so call it in a separate process.

    Args:
        function: the function, as for :func:`named_numbers`.
        passed: objects that are passed unchanged, by parameter.
        numbers: name, as :func:`named_numbers` returns it -> the new number.

    Example:
        >>> from types import SimpleNamespace
        >>> from rl_sentinel.adapters.kit.numbers_in_code import set_numbers
        >>> args = SimpleNamespace(gradient_accumulation_steps=4)
        >>> loss = lambda loss, args: loss / args.gradient_accumulation_steps
        >>> set_numbers(loss, {"args": args}, {"gradient_accumulation_steps": 1}), args
        (['gradient_accumulation_steps'], namespace(gradient_accumulation_steps=1))
    """
    owner = owner_of(function)
    functions = list(read_functions(unwrap(function), owner))
    words = frozenset[str]().union(*(words_of(f.__code__) for f in functions))
    changed = dict[str, None]()
    holders: list[object] = [one.__globals__ for one in functions]
    for thing in (owner, *passed.values(), *global_objects(functions, words)):
        holders += [holder for _, holder in holders_of(thing, words, DEPTH)]
    for holder in holders:
        # An upper range that is forgotten is set too; a discount is not: rewards to go rightly ignore lambda.
        ranges = {name for name in _unread_numbers(holder, words) if role_of(name.lower()) == "clip_high"}
        wanted = frozenset(word for word in words | ranges if word.lower() in numbers)
        for word, value in [*entries_of(holder, wanted)]:
            if _is_number(value) and value != numbers[word.lower()] and _assigned(holder, word, numbers[word.lower()]):
                changed[word] = None
    for name, cell in (pair for one in functions for pair in _cells(one)):
        if name.lower() in numbers and _is_number(cell.cell_contents) and cell.cell_contents != numbers[name.lower()]:
            cell.cell_contents = numbers[name.lower()]
            changed[name] = None
    return list(changed)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cells(function: FunctionType) -> Iterator[tuple[str, CellType]]:
    """The variables of the enclosing functions that have a value."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            _ = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        yield name, cell


def _assigned(holder: object, name: str, number: float) -> bool:
    """Set an entry or attribute, even of a frozen dataclass; return False if it cannot be set."""
    if isinstance(holder, MutableMapping):
        holder[name] = number
        return True
    try:
        object.__setattr__(holder, name, number)
    except (AttributeError, TypeError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Literals:
    """The numbers in a function's code, and in the functions of its module that it names.

    Attributes:
        floats: literals, defaults of parameters, and floats that the code reads from a global, its object or a
            configuration.
        sizes: integers above 1 at the same places.
        bounds: pairs of floats that the code passes one after the other, as in ``clamp(ratio, 1 - 0.2, 1.3)``.
    """

    floats: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    bounds: frozenset[tuple[float, float]] = frozenset()


def literals(function: Callable[..., Any], passed: Mapping[str, Any] | None = None) -> Literals:
    """The literals of a function; ``function`` and ``passed`` are as for :func:`named_numbers`.

    Example:
        >>> from rl_sentinel.adapters.kit.numbers_in_code import literals
        >>> def loss(ratio, width=8): return ratio.clamp(1 - 0.25, 1.5) / width
        >>> literals(loss)
        Literals(floats=(0.75, 1.5), sizes=(8,), bounds=frozenset({(0.75, 1.5)}))
    """
    owner = owner_of(function)
    functions = list(read_functions(unwrap(function), owner))
    words = frozenset[str]().union(*(words_of(f.__code__) for f in functions))
    objects = [owner, *(passed or {}).values(), *global_objects(functions, words)]
    found = [value for _, value in _values(functions, words, objects)] + list((passed or {}).values())
    bounds = set[tuple[float, float]]()
    for one in functions:
        constants = [x for code in codes_of(one.__code__) for x in code.co_consts]
        found += [part for x in constants for part in (x if isinstance(x, tuple) else (x,))]
        found += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        bounds |= _pairs(one)
    floats = dict.fromkeys(x for x in found if isinstance(x, float))
    sizes = dict.fromkeys(x for x in found if isinstance(x, int) and not isinstance(x, bool) and x > 1)
    return Literals(tuple(floats), tuple(sizes), frozenset(bounds))


def _pairs(function: FunctionType) -> set[tuple[float, float]]:
    """The pairs of floats that the code loads directly after each other."""
    steps = [step for code in codes_of(function.__code__) for step in dis.get_instructions(code)]
    pairs = [(a.argval, b.argval) for a, b in pairwise(steps) if a.opname == b.opname == "LOAD_CONST"]
    return {(a, b) for a, b in pairs if isinstance(a, float) and isinstance(b, float)}


def _values(
    functions: list[FunctionType], words: frozenset[str], objects: list[object]
) -> Iterator[tuple[str, object]]:
    for one in functions:
        yield from ((word, one.__globals__[word]) for word in words if word in one.__globals__)
        yield from _literals_of_variables(one.__code__)
        yield from ((name, cell.cell_contents) for name, cell in _cells(one))
    for thing in objects:
        yield from values_of(thing, words, DEPTH)


def _literals_of_variables(code: CodeType) -> Iterator[tuple[str, object]]:
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


def _all_entries(holder: object) -> Iterator[tuple[str, object]]:
    """All keys of a mapping that are texts, or all attributes of an object and of its classes, with their values."""
    if isinstance(holder, Mapping):
        yield from ((name, value) for name, value in holder.items() if isinstance(name, str))
        return
    of_classes = {name: value for kind in reversed(type(holder).__mro__) for name, value in vars(kind).items()}
    for name, value in {**of_classes, **getattr(holder, "__dict__", {})}.items():
        yield name, (getattr(holder, name, None) if isinstance(value, MemberDescriptorType) else value)  # a slot


def _unread_partners(
    objects: list[object], words: frozenset[str], unread: Collection[str]
) -> Iterator[tuple[str, object]]:
    """Numbers that objects hold and the code does not read.

    Their role is in ``unread``, or the code reads the partner number, such as the lower clip range.
    """
    for name, holder in (one for thing in objects for one in holders_of(thing, words, DEPTH)):
        yield from sorted(_unread_numbers(holder, words, unread).items())
        if name:  # ``high`` of ``config.clip`` is ``clip_high``
            inside = {f"{name}_{inner}": value for inner, value in _all_entries(holder)}
            joined = {f"{name}_{word}" for word in words}
            yield from sorted(_unread_numbers(inside, frozenset(joined), unread).items())


def _unread_numbers(holder: object, words: frozenset[str], unread: Collection[str] = ()) -> dict[str, object]:
    """Entries of an object that the code does not read, though it reads their partner or ``unread`` has their role."""
    held = dict(_all_entries(holder))
    roles = {name: role_of(name.lower()) for name in held}
    read = {role for name, role in roles.items() if name in words}
    return {n: held[n] for n, r in roles.items() if n not in words and (_PARTNERS.get(r) in read or r in unread)}
