"""Argument checks, from annotations by one decorator: dtypes, shapes, words, ranges, finite numbers where they count.

``RL_SENTINEL_CHECKS=0`` in the environment switches all of them off at import: nothing is then read from a device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.refusal import CHECKED, number, one_of
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
    words for their ``Literal``, numbers for being numbers.

    Args:
        rows: whether columns ``"*S"`` may be one number per row, too.
        finite: columns, separated by spaces, that must be finite where ``mask`` (or ``live``) is True.
        explain: columns that are checked for this only if the result is not finite.
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
        check = _Plan.of(get_type_hints(function, include_extras=True), rows=rows, ranges=ranges)
        wanted, behind, bounds = finite.split(), explain.split(), ordered.split()
        where = "mask" if "mask" in names else "live"
        why = FINITE["count" if rows else where]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            values: dict[str, Any] = dict(zip(names, args, strict=False))
            values.update(kwargs)
            check(values)
            if bounds:
                require_order(**{n: values[n] for n in bounds})
            for name in wanted:
                require_finite(name, values[name], where=values[where], why=why)
            result = function(*args, **kwargs)
            if behind:
                explain_result(cast("Tensor", result), where=values[where], **{n: values[n] for n in behind})
            return result

        return checked

    return decorate


def validate_record(record: Any, **ranges: Range) -> None:  # noqa: ANN401 - any dataclass
    """Check the fields of a dataclass by their annotations, from its ``__post_init__``."""
    if CHECKED:
        kind = type(record)
        if kind not in _PLANS:
            own = {f.name for f in fields(record) if f.init}
            hints = {n: k for n, k in get_type_hints(kind, include_extras=True).items() if n in own}
            _PLANS[kind] = _Plan.of(hints, rows=False, ranges=ranges)
        plan = _PLANS[kind]
        plan({name: getattr(record, name) for name in plan.names})


@dataclass(frozen=True, slots=True)
class _Tensors:
    """How a parameter that holds a tensor is checked: its kind, its axes (one of several), whether it may be None."""

    kind: str
    axes: tuple[tuple[str, ...], ...]
    optional: bool
    segments: bool

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """Those of its kind."""
        return DTYPES[self.kind]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checks of a signature, made once: of plain values, and of tensors."""

    plain: Mapping[str, Callable[[object], None]]
    tensors: Mapping[str, _Tensors]
    rows: bool

    @property
    def names(self) -> list[str]:
        """Every parameter that is checked."""
        return [*self.plain, *self.tensors]

    @classmethod
    def of(cls, hints: Mapping[str, Any], *, rows: bool, ranges: Mapping[str, Range]) -> "_Plan":
        """From annotations."""
        plain, tensors = dict[str, Callable[[object], None]](), dict[str, _Tensors]()
        for name, hint in hints.items():
            kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
            arrays = [k for k in kinds if hasattr(k, "dim_str")]
            if name == "return":
                continue
            if arrays:
                axes = tuple(tuple(k.dim_str.split()) for k in arrays)
                tensors[name] = _Tensors(_kind(arrays[0].dtypes), axes, NoneType in kinds, Segments in kinds)
            elif (one := _plain(name, hint, ranges.get(name))) is not None:
                plain[name] = one
        return cls(plain, tensors, rows)

    def __call__(self, values: Mapping[str, Any]) -> None:
        """Check the arguments that were given."""
        if not self._fits(values):
            self._refuse(values)
        for name, check in self.plain.items():
            if name in values:
                check(values[name])

    def _fits(self, values: Mapping[str, Any]) -> bool:  # noqa: C901 - one loop of comparisons, run on every call
        """Whether tensors of the common form fit, at the price of a few comparisons; False may be anything else."""
        mask = values.get("mask")
        packed = type(mask) is Segments
        tokens: torch.Size | None = None
        rows: int | None = len(mask.length) if type(mask) is Segments else None
        for name, about in self.tensors.items():
            column = values.get(name)
            if type(column) is Segments:
                column = column.mask
            if not isinstance(column, Tensor) or column.is_meta or column.dtype not in about.dtypes:
                return False
            shape = column.shape
            if about.axes == _TOKENS:
                if tokens is None:
                    tokens = shape
                    if len(shape) != (1 if packed else 2) or mask is None:
                        return False
                if shape != tokens:
                    return False
            elif about.axes == _ROWS and len(shape) == 1:
                if rows is None:
                    rows = shape[0]
                if shape[0] != rows:
                    return False
            else:
                return False
        return tokens is None or packed or rows is None or rows == tokens[0]

    def _refuse(self, values: Mapping[str, Any]) -> None:
        """Refuse the first tensor that does not fit, if one does not."""
        shapes = _Shapes(values.get("mask"), rows=self.rows)
        for name, about in self.tensors.items():
            if name not in values or (values[name] is None and about.optional):
                continue
            column = trained(values[name]) if about.segments else values[name]
            require_kind(name, column, about.kind)
            shapes.check(name, column.shape, about.axes)


_PLANS: dict[type, _Plan] = {}

#: Axes of columns of tokens and of rows.
_TOKENS, _ROWS = (("*S",),), (("B",),)


def _kind(dtypes: object) -> str:
    names = set(cast("tuple[str, ...]", dtypes)) if isinstance(dtypes, list | tuple) else set[str]()
    return "bool" if "bool" in names else "whole" if "int64" in names else "floating" if names else ""


def _plain(name: str, hint: Any, span: Range | None) -> Callable[[object], None] | None:  # noqa: ANN401 - an annotation
    """The check of a parameter that is no tensor; None for one that the function checks itself."""
    check: Callable[[object], None] | None = None
    if span is not None:
        check = partial(require_range, name, span=span)
    elif hint in (float, int):
        check = partial(number, name)
    elif get_origin(hint) is Literal:
        check = partial(one_of, name, words=get_args(hint))
    elif hint is bool:
        check = partial(require_instance, name, kind=bool, what="True or False")
    elif hint == torch.Generator | None:
        what = "a source of randomness, or None"
        check = partial(require_instance, name, kind=torch.Generator | NoneType, what=what)
    elif isinstance(hint, type) and hint.__module__.startswith(__name__.rpartition(".")[0]):
        check = partial(require_instance, name, kind=hint, what=f"see {hint.__module__}.{hint.__name__}")
    return check


class _Shapes:
    """The sizes of named axes, as the columns of one call show them."""

    def __init__(self, mask: object, *, rows: bool) -> None:
        """Of ``rows``, columns of tokens may be columns of rows."""
        self.packed, self.rows = isinstance(mask, Segments), rows
        self.tokens: tuple[str, ...] = ("*S",) if mask is None else ("N",) if self.packed else ()
        self.columns: dict[str, tuple[str, torch.Size]] = {}
        self.sizes: dict[str, tuple[str, int]] = {"B": ("mask", len(mask.length))} if isinstance(mask, Segments) else {}

    def check(self, name: str, shape: torch.Size, options: tuple[tuple[str, ...], ...]) -> None:
        """Refuse a column whose axes are not those of its annotation, or whose sizes differ from other columns."""
        axes = self._axes(options, len(shape))
        if axes[0].startswith("*") and len(shape) >= len(axes) - 1:  # any axes, then named ones
            free = len(shape) - len(axes) + 1
            self._same(name, axes[0], shape[:free])
            shape, axes = shape[free:], axes[1:]
        if len(axes) != len(shape):
            told = f"{len(axes)} axes [{', '.join(axes)}]"
            raise InputError(f"{name} has shape {list(shape)}, expected {told}: no tensor is broadcast")
        self._same(name, " ".join(axes), shape)
        for axis, size in zip(axes, shape, strict=True):
            first, known = self.sizes.setdefault(axis, (name, size))
            if size != known and axis != "N":
                raise InputError(f"{name} has shape {list(shape)}, expected {axis} = {known}: that of {first}")

    def _same(self, name: str, key: str, shape: torch.Size) -> None:
        first, known = self.columns.setdefault(key, (name, shape))
        if shape != known:
            raise InputError(f"{name} has shape {list(shape)}, expected {list(known)}: that of {first}")

    def _axes(self, options: tuple[tuple[str, ...], ...], count: int) -> tuple[str, ...]:
        """The axes of the first option with so many; columns of tokens are all of one form."""
        if self.packed and len(options) > 1:
            return ("*either",)  # no shape can tell tokens from rows: the function does
        if not self.tokens and ("*S",) in options:
            self.tokens = ("B",) if self.rows and count == 1 else ("B", "T")
        named = [self.tokens if o == ("*S",) else o for o in options]
        return next((axes for axes in named if len(axes) == count), named[0])
