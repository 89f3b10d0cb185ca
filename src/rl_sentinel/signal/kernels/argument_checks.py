"""Wrap a function with straight-line code of its argument checks: the common case costs a few comparisons per call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, NoReturn, cast

from torch import Tensor

from rl_sentinel.core.errors import ArgumentNameError
from rl_sentinel.signal.segments import Segments

#: Default of required parameters: a parameter that still has it is missing.
ABSENT = object()

#: Axes of columns of tokens and of rows.
TOKENS, ROWS = (("*S",),), (("B",),)


@dataclass(frozen=True, slots=True)
class Column:
    """A tensor parameter: the kind of its dtypes, its possible axes, whether None or Segments are allowed."""

    kind: str
    axes: tuple[tuple[str, ...], ...]
    optional: bool
    segments: bool


@dataclass(frozen=True, slots=True)
class Plain:
    """The check of a parameter that is not a tensor: the full check, and an expression that is True for common values.

    In the expression, ``{}`` is the parameter, and other names are keys of ``names``.
    """

    check: Callable[[object], None]
    passes: str = "False"
    names: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Code:
    """Lines of a function body, and the objects that they use."""

    lines: list[str]
    names: dict[str, object]

    def bind(self, name: str, value: object) -> str:
        """Store an object for the lines, and return its name there: ``name`` after an underscore."""
        self.names[f"_{name}"] = value
        return f"_{name}"


def wrap(function: Callable[..., Any], code: Code, after: Sequence[str] = ()) -> Callable[..., Any]:
    """Return ``function`` with generated checks: the lines of ``code``, the call, then the lines ``after``.

    In the lines ``after``, ``_result`` is the result of the call.

    The code is generated as ``dataclasses`` generates ``__init__``: a generic wrapper over ``*args, **kwargs`` costs
    several microseconds per call, as much as the work of a small loss. The function takes any keyword, and no parameter
    is required, so that the message for a misspelled keyword can name the nearest parameter.
    """
    header, passed, wrong = list[str](), list[str](), ["_unknown"]
    absent = code.bind("absent", ABSENT)
    for name, parameter in signature(function).parameters.items():
        keyword = parameter.kind is Parameter.KEYWORD_ONLY
        if keyword and "*" not in header:
            header.append("*")
        if parameter.default is Parameter.empty:
            header.append(f"{name}={absent}")
            wrong.append(f"{name} is {absent}")
        else:
            header.append(f"{name}={code.bind(f'default_{name}', parameter.default)}")
        passed.append(f"{name}={name}" if keyword else name)
    given = f"{{{', '.join(f'{name!r}: {name}' for name in signature(function).parameters)}}}"
    names = f"if {' or '.join(wrong)}: {code.bind('refuse', partial(refuse_names, function))}(_unknown, {given})"
    call = f"{code.bind('function', function)}({', '.join(passed)})"
    tail = [f"_result = {call}", *after, "return _result"] if after else [f"return {call}"]
    body = "\n    ".join([names, *code.lines, *tail])
    made: dict[str, Any] = {}
    text = f"def {function.__name__}({', '.join([*header, '**_unknown'])}):\n    {body}\n"
    exec(compile(text, f"<checks of {function.__qualname__}>", "exec"), code.names, made)  # noqa: S102 - text made here
    return cast("Callable[..., Any]", wraps(function)(made[function.__name__]))


def refuse_names(function: Callable[..., Any], unknown: Iterable[str], given: Mapping[str, object]) -> NoReturn:
    """Raise for keywords that a function does not have, or for a required parameter that is missing.

    Raises:
        ArgumentNameError: names the first such keyword and a similar parameter, or the missing parameters.

    Example:
        >>> from rl_sentinel.signal.kernels.argument_checks import refuse_names
        >>> from rl_sentinel.signal.reward import clipped
        >>> refuse_names(clipped, ["lest"], {"reward": 1.0})
        Traceback (most recent call last):
        rl_sentinel.core.errors.ArgumentNameError: reward.clipped() has no parameter 'lest', the nearest is 'least': it takes reward, live, least, most
    """  # noqa: E501 - a message is one line
    call, names = f"{function.__qualname__}()", list(signature(function).parameters)
    if function.__module__.startswith("rl_sentinel.signal."):
        call = f"{function.__module__.removeprefix('rl_sentinel.signal.')}.{call}"
    for name in unknown:
        near = "".join(f", the nearest is {n!r}" for n in get_close_matches(name, names, n=1, cutoff=0.5))
        raise ArgumentNameError(f"{call} has no parameter {name!r}{near}: it takes {', '.join(names)}")
    missing = ", ".join(name for name in names if given.get(name) is ABSENT)
    raise ArgumentNameError(f"{call} is called without {missing}: it takes {', '.join(names)}")


def columns_fit(columns: Mapping[str, Column], dtypes: Mapping[str, object], code: Code, *, rows: bool) -> str:
    """Add lines that read shapes; return an expression that is True only if all tensors fit their annotations.

    It is False for some valid arguments too, such as axes other than tokens and rows: the full check decides then. With
    ``rows``, the columns per token may all have one number per row instead.
    """
    if any(c.axes not in (TOKENS, ROWS) for c in columns.values()):
        return "False"
    terms, tensor = [], code.bind("Tensor", Tensor)
    values = {name: f"_column_{name}" if c.segments else name for name, c in columns.items()}
    for name in (n for n, c in columns.items() if c.segments):
        packed = f"type({name}) is {code.bind('Segments', Segments)}"
        code.lines.append(f"{values[name]} = {name}.mask if {packed} else {name}")
    shapes: dict[tuple[tuple[str, ...], ...], str] = {}
    for name, column in columns.items():
        value, first = values[name], shapes.get(column.axes)
        kind = code.bind(f"dtypes_{column.kind}", dtypes[column.kind])
        of_kind = f"isinstance({value}, {tensor}) and {value}.dtype in {kind} and not {value}.is_meta"
        if column.optional and first is None:
            return "False"
        if column.optional:
            terms.append(f"({value} is None or ({of_kind} and {value}.shape == {first}))")
        elif first is not None:
            terms.append(f"{of_kind} and {value}.shape == {first}")
        else:
            shapes[column.axes] = first = "_tokens" if column.axes == TOKENS else "_rows"
            terms.append(f"{of_kind} and ({first} := {value}.shape) is not None")
            if column.axes == ROWS:
                terms.append("len(_rows) == 1")
    if "mask" in columns and TOKENS in shapes:
        terms.append(_axes_fit(packed=columns["mask"].segments, of_rows=ROWS in shapes, rows=rows))
    elif len(shapes) > 1:
        return "False"
    return " and ".join(terms) or "True"


def _axes_fit(*, packed: bool, of_rows: bool, rows: bool) -> str:
    """A condition: the mask has valid axes, and as many rows as the columns per row."""
    padded = f"len(_tokens) {'in (1, 2)' if rows else '== 2'}" + " and _rows[0] == _tokens[0]" * of_rows
    if not packed:
        return padded
    return f"({'_rows == mask.length.shape' if of_rows else 'True'} if type(mask) is _Segments else {padded})"
