"""The decorator that checks arguments by their annotations: dtypes, shapes, literals, ranges, finite values.

``RL_SENTINEL_CHECKS=0`` in the environment switches it off at import; then no check synchronizes with a device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import signature
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import torch

from rl_sentinel.core.argument_checks import CHECKED, number, one_of
from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kernels.argument_checks import Code, Column, Plain, columns_fit, wrap
from rl_sentinel.signal.requirements import (
    DTYPES,
    FINITE,
    Range,
    explain_result,
    require_finite,
    require_instance,
    require_kind,
    require_order,
    require_range,
)
from rl_sentinel.signal.segments import Segments, trained

P = ParamSpec("P")
R = TypeVar("R")


def validate(
    *, rows: bool = False, finite: str = "", explain: str = "", ordered: str = "", **ranges: Range
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function by their annotations.

    Tensors are checked for dtype and shape (columns annotated ``"*S"`` have the shape of the mask), flags for bool,
    strings for their ``Literal``, numbers for their type.

    Args:
        rows: True if the columns ``"*S"`` may all have one number per row instead.
        finite: columns, separated by spaces, that must be finite where ``mask`` (or ``live``) is True.
        explain: columns that must be finite there too, but are checked only if the result is not finite.
        ordered: the names of a lower and an upper bound.
        ranges: the range of each number, by parameter.

    Returns:
        A decorator; it returns the function itself if checks are off.

    Example:
        >>> import torch
        >>> from jaxtyping import Float
        >>> from rl_sentinel.signal.requirements import FRACTION
        >>> from rl_sentinel.signal.validation import validate
        >>> @validate(decay=FRACTION)
        ... def faded(value: Float[torch.Tensor, " B"], *, decay: float) -> Float[torch.Tensor, " B"]:
        ...     return value * decay
        >>> faded(torch.ones(2), decay=2.0)
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: decay is 2.0, expected a number of 0 or more and at most 1
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if not CHECKED:
            return function
        names = list(signature(function).parameters)
        plan = _Plan.of(get_type_hints(function, include_extras=True), rows=rows, ranges=ranges)
        where = "mask" if "mask" in names else "live"
        code = plan.code()
        if ordered:
            bounds = ", ".join(f"{n}={n}" for n in ordered.split())
            code.lines.append(f"{code.bind('require_order', require_order)}({bounds})")
        for name in finite.split():
            require = code.bind("require_finite", require_finite)
            why = code.bind("why", FINITE["count" if rows else where])
            code.lines.append(f"{require}({name!r}, {name}, where={where}, why={why})")
        after = list[str]()
        if explain:
            columns = ", ".join(f"{n}={n}" for n in explain.split())
            after = [f"{code.bind('explain', explain_result)}(_result, where={where}, {columns})"]
        return cast("Callable[P, R]", wrap(function, code, after))

    return decorate


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Check only the names of the arguments of a function.

    It suits a function that passes its arguments to another function, which checks the values.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kl import k2
        >>> k2(torch.zeros(1, 1), torch.zeros(1, 1), masks=torch.ones(1, 1).bool())
        Traceback (most recent call last):
        rl_sentinel.core.errors.ArgumentNameError: kl.k2() has no parameter 'masks', the nearest is 'mask': it takes logprob, ref_logprob, mask
    """  # noqa: E501 - a message is one line
    return cast("Callable[P, R]", wrap(function, Code([], {}))) if CHECKED else function


def validate_record(record: Any, **ranges: Range) -> None:  # noqa: ANN401 - any dataclass
    """Check the fields of a dataclass by their annotations, from its ``__post_init__``."""
    if CHECKED:
        kind = type(record)
        if kind not in _PLANS:
            names = {f.name for f in fields(record) if f.init}
            hints = {n: k for n, k in get_type_hints(kind, include_extras=True).items() if n in names}
            _PLANS[kind] = _Plan.of(hints, rows=False, ranges=ranges)
        plan = _PLANS[kind]
        plan.check_all({name: getattr(record, name) for name in plan.names})


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checks of a signature, for plain values and for tensors."""

    plain: Mapping[str, Plain]
    tensors: Mapping[str, Column]
    rows: bool

    @property
    def names(self) -> list[str]:
        """Every parameter that is checked."""
        return [*self.plain, *self.tensors]

    @classmethod
    def of(cls, hints: Mapping[str, Any], *, rows: bool, ranges: Mapping[str, Range]) -> "_Plan":
        """The plan of a signature, from its annotations."""
        plain, tensors = dict[str, Plain](), dict[str, Column]()
        for name, hint in hints.items():
            kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            arrays = [k for k in kinds if hasattr(k, "dim_str")]
            if name == "return":
                continue
            if arrays:
                axes = tuple(tuple(k.dim_str.split()) for k in arrays)
                tensors[name] = Column(_kind(arrays[0].dtypes), axes, NoneType in kinds, Segments in kinds)
            elif (check := _plain(name, hint, ranges.get(name))) is not None:
                plain[name] = check
        return cls(plain, tensors, rows)

    def code(self) -> Code:
        """Straight-line code of the checks, for a function with these parameters."""
        code = Code([], {})
        fits = columns_fit(self.tensors, DTYPES, code, rows=self.rows)
        values = ", ".join(f"{n!r}: {n}" for n in self.tensors)
        if self.tensors:
            code.lines.append(f"if not ({fits}): {code.bind('require_tensors', self.require_tensors)}({{{values}}})")
        for name, plain in self.plain.items():
            words = {word: code.bind(f"{word}_{name}", value) for word, value in plain.names.items()}
            passes, check = plain.passes.format(name, **words), code.bind(f"check_{name}", plain.check)
            code.lines.append(f"if not ({passes}): {check}({name})")
        return code

    def check_all(self, values: Mapping[str, Any]) -> None:
        """Check every argument."""
        if self.tensors:
            self.require_tensors(values)
        for name, plain in self.plain.items():
            plain.check(values[name])

    def require_tensors(self, values: Mapping[str, Any]) -> None:
        """Raise for the first tensor that does not fit its annotation."""
        shapes = _Shapes(values.get("mask"), rows=self.rows)
        for name, expected in self.tensors.items():
            if name not in values or (values[name] is None and expected.optional):
                continue
            column = trained(values[name]) if expected.segments else values[name]
            require_kind(name, column, expected.kind)
            shapes.check(name, column.shape, expected.axes)


_PLANS: dict[type, _Plan] = {}


def _kind(dtypes: object) -> str:
    names = set(cast("tuple[str, ...]", dtypes)) if isinstance(dtypes, list | tuple) else set[str]()
    return "bool" if "bool" in names else "whole" if "int64" in names else "floating" if names else ""


def _plain(name: str, hint: Any, span: Range | None) -> Plain | None:  # noqa: ANN401 - an annotation
    """The check of a parameter that is not a tensor; None for a parameter that the function checks."""
    plain: Plain | None = None
    if span is not None:
        plain = Plain(partial(require_range, name, span=span), *_in_range(span))
    elif hint in (float, int):
        plain = Plain(partial(number, name), "type({0}) is float")
    elif get_origin(hint) is Literal:
        words = get_args(hint)
        plain = Plain(partial(one_of, name, words=words), "type({0}) is str and {0} in {words}", {"words": words})
    elif hint is bool:
        check = partial(require_instance, name, kind=bool, what="True or False")
        plain = Plain(check, "{0} is True or {0} is False")
    elif hint == torch.Generator | None:
        what = "a source of randomness, or None"
        plain = Plain(partial(require_instance, name, kind=torch.Generator | NoneType, what=what), "{0} is None")
    elif isinstance(hint, type) and hint.__module__.startswith(__name__.rpartition(".")[0]):
        check = partial(require_instance, name, kind=hint, what=f"see {hint.__module__}.{hint.__name__}")
        plain = Plain(check, "type({0}) is {kind}", {"kind": hint})
    return plain


def _in_range(span: Range) -> tuple[str, Mapping[str, object]]:
    """An expression that is True for a Python number in the range, and the values of the names in it."""
    kind, limit = ("int", 2**63 - 1) if span.whole else ("float", torch.inf)
    least, most = max(span.least, -limit), limit if span.most is None else min(span.most, limit)
    above = "<" if span.most is None else "<="
    below = "<" if span.open_below or (span.most is None and least == -limit) else "<="
    ends = {"least": least, "most": most}
    return f"type({{0}}) is {kind} and {{least}} {below} {{0}} {above} {{most}}", ends


class _Shapes:
    """The sizes of named axes in one call."""

    def __init__(self, mask: object, *, rows: bool) -> None:
        """Start with the form and the sizes that the mask determines.

        With ``rows``, the columns per token may all have one number per row instead.
        """
        self.packed, self.rows = isinstance(mask, Segments), rows
        self.tokens: tuple[str, ...] = ("*S",) if mask is None else ("N",) if self.packed else ()
        self.columns: dict[str, tuple[str, torch.Size]] = {}
        self.sizes: dict[str, tuple[str, int]] = {"B": ("mask", len(mask.length))} if isinstance(mask, Segments) else {}

    def check(self, name: str, shape: torch.Size, options: tuple[tuple[str, ...], ...]) -> None:
        """Raise for a column whose axes differ from its annotation, or whose sizes differ from other columns.

        Raises:
            InputError: with the name of the column, its shape and the expected shape.
        """
        axes = self._axes(options, len(shape))
        whole, form = list(shape), ", ".join(axes)
        if axes[0].startswith("*") and len(shape) >= len(axes) - 1:  # any axes, then named ones
            free = len(shape) - len(axes) + 1
            self._same(name, axes[0], shape[:free])
            shape, axes = shape[free:], axes[1:]
        if len(axes) != len(shape):
            expected = f"{len(axes)} {'axis' if len(axes) == 1 else 'axes'} [{', '.join(axes)}]"
            raise InputError(f"{name} has shape {list(shape)}, expected {expected}: no tensor is broadcast")
        self._same(name, " ".join(axes), shape)
        for axis, size in zip(axes, shape, strict=True):
            first, expected_size = self.sizes.setdefault(axis, (name, size))
            if size != expected_size and axis != "N":
                expected = f"[{expected_size}]" if form == axis else f"[{form}] with {axis} = {expected_size}"
                raise InputError(f"{name} has shape {whole}, expected {expected}, as in {first}")

    def _same(self, name: str, key: str, shape: torch.Size) -> None:
        first, expected = self.columns.setdefault(key, (name, shape))
        if shape != expected:
            raise InputError(f"{name} has shape {list(shape)}, expected {list(expected)}, as in {first}")

    def _axes(self, options: tuple[tuple[str, ...], ...], count: int) -> tuple[str, ...]:
        """The axes of the first option with this number of axes; all columns per token have the same form."""
        if self.packed and len(options) > 1:
            return ("*either",)  # no shape can tell tokens from rows: the function does
        if not self.tokens and ("*S",) in options:
            self.tokens = ("B",) if self.rows and count == 1 else ("B", "T")
        by_name = [self.tokens if o == ("*S",) else o for o in options]
        return next((axes for axes in by_name if len(axes) == count), by_name[0])
