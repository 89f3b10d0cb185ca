"""Argument requirements with one-line errors: dtypes, ranges, order, finite values on the mask."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from rl_sentinel.core.argument_checks import CHECKED, is_number, number, refuse_where, unmapped
from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened
from rl_sentinel.signal.segments import Mask, Segments, trained

#: Kind of a tensor -> whether a dtype is of that kind, its dtypes in words, and how to convert a tensor ``{0}``.
_KINDS: Mapping[str, tuple[Callable[[torch.dtype], bool], str, str]] = {
    "bool": (
        lambda d: d == torch.bool,
        "bool",
        "a mask is True or False; compare numbers to make a mask, as in {0} > 0",
    ),
    "floating": (lambda d: d.is_floating_point, "a floating-point dtype", "convert the tensor, as in {0}.float()"),
    "whole": (
        lambda d: not (d.is_floating_point or d.is_complex or d == torch.bool),
        "an integer dtype",
        "labels and counts are integers; convert the tensor, as in {0}.long()",
    ),
    "": (lambda _: True, "any dtype", ""),
}

#: Kind -> the dtypes of that kind.
DTYPES: Mapping[str, frozenset[torch.dtype]] = {
    kind: frozenset(d for d in vars(torch).values() if isinstance(d, torch.dtype) and fits(d))
    for kind, (fits, *_) in _KINDS.items()
}

#: Why a number must be finite, by the parameter that says where it counts.
FINITE = {
    "mask": "a trained token needs a finite value (mask the token to leave it out)",
    "live": "a row with a trained token needs a finite value (mask the row to leave it out)",
    "count": "the mask counts this entry (set the mask to False there to leave it out)",
}

#: Whole numbers must be below this limit, so that an int64 tensor can hold them.
_WHOLE = 2.0**63


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a number.

    ``most`` is the largest allowed value; None allows any finite number, infinity allows infinity too. ``open_below``
    excludes ``least`` itself; ``whole`` allows only integers.
    """

    least: float = -torch.inf
    most: float | None = None
    open_below: bool = False
    whole: bool = False


ANY, EXTENDED = Range(), Range(most=torch.inf)
FRACTION, SHARE = Range(0.0, 1.0), Range(0.0, 1.0, open_below=True)
NON_NEGATIVE, POSITIVE = Range(0.0), Range(0.0, open_below=True)
LIMIT, POSITIVE_LIMIT, CEILING = (
    Range(0.0, torch.inf),
    Range(0.0, torch.inf, open_below=True),
    Range(1.0, torch.inf, open_below=True),
)
COUNT, POSITIVE_COUNT, WHOLE = Range(0, whole=True), Range(1, whole=True), Range(whole=True)

#: A clip of a ratio: half precision can represent the bound, and no ratio in training is further from 1.
CLIP = Range(0.0, 10_000.0)


def require_kind(name: str, tensor: object, kind: str) -> None:
    """Require a tensor of a kind: bool, floating, whole, or any kind for an empty string.

    Raises:
        InputError: if it is not a tensor, has no values, or has a dtype of another kind.
    """
    fits, dtypes, hint = _KINDS[kind]
    if tensor is None:
        raise InputError(f"{name} is None, expected a tensor of {dtypes}")
    if not isinstance(tensor, Tensor):
        fix = f"make a tensor, as in torch.tensor({name})"
        if isinstance(tensor, Segments):
            fix = "live_rows makes one per row, segments.trained one per token"
        raise InputError(f"{name} is of type {type(tensor).__name__}, expected a tensor of {dtypes}: {fix}")
    if tensor.is_meta:
        raise InputError(f"{name} is on the meta device, expected a device with values: the checks read the values")
    if not fits(tensor.dtype):
        found = str(tensor.dtype).removeprefix("torch.")
        raise InputError(f"{name} has dtype {found}, expected {dtypes}: {hint.format(name)}")


def require_columns(mask: Mask, like: str = "as in mask", /, **columns: Shaped[Tensor, "..."]) -> None:
    """Require floating-point columns of the mask's shape, for results of user functions; ``like`` ends the message.

    Raises:
        InputError: if a column is not a floating-point tensor, or has another shape.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.requirements import require_columns
        >>> require_columns(torch.ones(2).bool(), weight=torch.ones(2))
    """
    expected = trained(mask).shape
    for name, column in columns.items():
        require_kind(name, column, "floating")
        if column.shape != expected:
            raise InputError(f"{name} has shape {list(column.shape)}, expected {list(expected)}, {like}")


def require_instance(name: str, value: object, kind: type | UnionType, what: str) -> None:
    """Require an instance of a class.

    Raises:
        InputError: if the value is not an instance of ``kind``.

    Example:
        >>> from rl_sentinel.signal.requirements import require_instance
        >>> require_instance("size", 3, int, "a number of rows")
    """
    if not isinstance(value, kind):
        name_of_kind = getattr(kind, "__name__", str(kind))
        article = "an" if name_of_kind[0] in "AEIOUaeiou" else "a"
        raise InputError(f"{name} is {shortened(value)}, expected {article} {name_of_kind}: {what}")


def require_finite(name: str, values: Shaped[Tensor, "..."], *, where: Mask, why: str) -> None:
    """Require finite values where a mask is True.

    Raises:
        InputError: naming the first place that is not finite.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.requirements import require_finite
        >>> counts = torch.tensor([False, True])
        >>> require_finite("reward", torch.tensor([torch.nan, 1.0]), where=counts, why="it is used")
    """
    if not CHECKED:
        return
    unmapped(values)
    if sum_is_finite(values):
        return
    wrong = trained(where) & ~values.isfinite()
    refuse_where(wrong, lambda index: f"{_at(name, values, index)}, expected a finite number: {why}")


def explain_result(result: Shaped[Tensor, "..."], *, where: Mask, **columns: Shaped[Tensor, "..."]) -> None:
    """If a result is not finite, raise for an input column that is not finite; finite inputs may overflow.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.requirements import explain_result
        >>> explain_result(torch.tensor(0.5), where=torch.tensor([True]), logprob=torch.tensor([0.5]))
    """
    if not CHECKED:
        return
    unmapped(result)
    if not sum_is_finite(result):
        for name, values in columns.items():
            require_finite(name, values, where=where, why=FINITE["mask"])


def require_span(  # noqa: PLR0913 - a column, where it counts, and its possible numbers
    name: str, values: Shaped[Tensor, "..."], *, where: Mask, span: tuple[float, float], slack: float = 0.0, why: str
) -> None:
    """Require values of a closed range where a mask is True; NaN is left to :func:`require_finite`.

    Args:
        name: the parameter.
        values: its numbers.
        where: True where they count.
        span: the smallest and the largest possible number.
        slack: by how much a value may exceed the largest number because of rounding.
        why: the end of the message, which says what the numbers are.

    Raises:
        InputError: naming the first place out of range.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.requirements import require_span
        >>> certain = torch.tensor([1e-6, 9.0])
        >>> first = torch.tensor([True, False])
        >>> require_span("logprob", certain, where=first, span=(-torch.inf, 0.0), slack=0.5, why="it is a log")
    """
    if not CHECKED:
        return
    unmapped(values)
    (least, most), wrong = span, (values > span[1] + slack) | (values < span[0])
    bounds = f"{least:g} or more" if most == torch.inf else f"from {least:g} to {most:g}"
    bounds = f"at most {most:g}" if least == -torch.inf else bounds
    refuse_where(trained(where) & wrong, lambda index: f"{_at(name, values, index)}, expected {bounds}: {why}")


def require_logprobs(*, where: Mask, **logprobs: Shaped[Tensor, "..."]) -> None:
    """Require log-probs of at most 0, apart from rounding.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.requirements import require_logprobs
        >>> require_logprobs(logprob=torch.tensor([0.75]), where=torch.tensor([True]))
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: logprob[0] is 0.75, expected at most 0: it is the log of a probability, in nats
    """  # noqa: E501 - a message is one line
    for name, column in logprobs.items():
        why = "it is the log of a probability, in nats"
        require_span(name, column, where=where, span=(-torch.inf, 0.0), slack=0.5, why=why)


def sum_is_finite(values: Shaped[Tensor, "..."]) -> bool:
    """Whether the sum is finite, in one pass: one value that is not finite makes the sum not finite."""
    return math.isfinite((values.detach().sum() if values.dim() else values).item())


def _at(name: str, values: Tensor, index: list[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}] is {values[tuple(index)].item()}"


def require_range(name: str, number: Any, span: Range) -> None:  # noqa: ANN401 - whether it is a number is checked
    """Require a number in a range; NaN is in no range.

    Raises:
        InputError: if the number is not in the range; the message states the range.

    Example:
        >>> from rl_sentinel.signal.requirements import FRACTION, require_range
        >>> require_range("decay", 0.5, FRACTION)
    """
    least, most = span.least, span.most
    if (
        is_number(number)
        and (number > least if span.open_below else number >= least)
        and (math.isfinite(number) if most is None else number <= most)
        and (not span.whole or (abs(number) < _WHOLE and number == int(number)))
    ):
        return
    below = f"above {least:g}" if span.open_below else f"of {least:g} or more" if least > -torch.inf else ""
    endless = is_number(number) and math.isinf(number)
    kind = "a whole number" if span.whole else "a finite number" if most is None and endless else "a number"
    text = number if is_number(number) else shortened(number)
    end = "" if most in (None, torch.inf) else f" and at most {most:g}"
    if not end and (span.whole or isinstance(number, int)) and isinstance(number, int | float):
        size = " and below 2**63" if below else " whose absolute value is below 2**63"
        end = size if _WHOLE <= abs(number) < math.inf else ""
    raise InputError(f"{name} is {text}, expected {' '.join([kind, *[below] * bool(below)])}{end}")


def require_order(**bounds: float) -> None:
    """Require two bounds in ascending order, neither of them NaN.

    Args:
        bounds: the lower bound, then the upper bound, by parameter name.

    Raises:
        InputError: if a bound is NaN or not a number, or the lower bound is above the upper bound.

    Example:
        >>> from rl_sentinel.signal.requirements import require_order
        >>> require_order(low=1.0, high=0.5)
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: high is 0.5, expected 1.0 or more: it is the upper bound, and low the lower one
    """  # noqa: E501 - a message is one line
    (lower, least), (upper, most) = bounds.items()
    for name, bound in bounds.items():
        number(name, bound)
        if math.isnan(bound):
            raise InputError(f"{name} is nan, expected a number: a bound cannot be NaN")
    if least > most:
        text = f"{upper} is {most}, expected {least} or more"
        raise InputError(f"{text}: it is the upper bound, and {lower} the lower one")
