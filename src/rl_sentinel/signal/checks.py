"""What every function asks of its tensors: kinds, shapes, and finite numbers where something is trained."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.refusal import is_number, number, unmapped
from rl_sentinel.signal.segments import Mask, Segments, trained

#: What a tensor may be -> whether a dtype is that, and what to do where it is not.
_KINDS: Mapping[str, tuple[Callable[[torch.dtype], bool], str]] = {
    "bool": (lambda d: d == torch.bool, "a mask says yes or no; compare numbers to make one, as in mask > 0"),
    "floating": (lambda d: d.is_floating_point, "convert it, as in values.float()"),
    "whole": (
        lambda d: not (d.is_floating_point or d.is_complex or d == torch.bool),
        "labels and counts are integers; convert them, as in labels.long()",
    ),
}

#: Parameter -> the kind that it has; every other tensor holds floating numbers.
_KIND_OF = {
    **dict.fromkeys(("mask", "live", "kept", "scored", "keep", "last", "chosen", "fact"), "bool"),
    **dict.fromkeys(
        ("group", "length", "prompt_length", "prompt_tokens", "trajectory", "token", "tokens", "turn", "version"),
        "whole",
    ),
}


def checked(axes: str, **tensors: Shaped[Tensor, "..."] | Segments) -> None:
    """Refuse tensors of another kind than their names say, or that do not all have one shape of these axes.

    Args:
        axes: dimension letters, as ``"B T"``; of ``"B|B T"`` those as many as the first tensor has axes.
        tensors: by parameter name; with segments among them the axes are their one, ``"N"``; masks and facts must be bool, labels and lengths whole, others floating.

    Raises:
        InputError: naming the first tensor, what it is and what was expected; it is a ``ValueError`` too.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import checked
        >>> checked("B", reward=torch.zeros(2), live=torch.ones(2))
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: live has dtype float32, expected bool: a mask says yes or no; compare numbers to make one, as in mask > 0
    """  # noqa: E501 - a message is one line
    axes = "N" if any(isinstance(t, Segments) for t in tensors.values()) else axes
    found = {name: trained(tensor) for name, tensor in tensors.items()}
    kinds(**found)
    if "|" in axes:
        told = [one for one in axes.split("|") if len(one.split()) == next(iter(found.values())).dim()]
        axes = told[0] if told else axes.rpartition("|")[2]
    _one_shape(axes.split(), {n: t.shape for n, t in found.items()})


def kinds(**tensors: Shaped[Tensor, "..."]) -> None:
    """Refuse tensors of another kind than their names say, whatever their shapes.

    Raises:
        InputError: naming the first tensor, what it is and what was expected.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import kinds
        >>> kinds(token=torch.zeros(2, dtype=torch.long), mask=torch.ones(2).bool())
    """
    for name, tensor in tensors.items():
        kind = _KIND_OF.get(name, "floating")
        fits, way = _KINDS[kind]
        if not isinstance(tensor, Tensor):
            raise InputError(f"{name} is of type {type(tensor).__name__}, expected a tensor, {kind}: {way}")
        if tensor.is_meta:
            raise InputError(f"{name} is on the meta device, expected numbers: what is refused is asked of them")
        if not fits(tensor.dtype):
            raise InputError(f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}, expected {kind}: {way}")


def _one_shape(axes: Sequence[str], shapes: Mapping[str, torch.Size]) -> None:
    first = ""
    for name, shape in shapes.items():
        if len(shape) != len(axes):
            told = f"{len(axes)} axes [{', '.join(axes)}]"
            raise InputError(f"{name} has shape {list(shape)}, expected {told}: no tensor is broadcast")
        if first and shape != shapes[first]:
            raise InputError(f"{name} has shape {list(shape)}, expected {list(shapes[first])}: that of {first}")
        first = first or name


def instance(name: str, value: object, kind: type, what: str) -> None:
    """Refuse what is of another class, such as a word where its object is wanted.

    Raises:
        InputError: naming the parameter and what was given.

    Example:
        >>> from rl_sentinel.signal.checks import instance
        >>> instance("size", 3, int, "a number of rows")
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
        raise InputError(f"{name} is {value!r}, expected {article} {kind.__name__}: {what}")


def finite(name: str, values: Shaped[Tensor, "..."], *, where: Mask, why: str) -> None:
    """Refuse a number that is not finite where it counts.

    Raises:
        InputError: naming the first such place.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import finite
        >>> finite("reward", torch.tensor([torch.nan, 1.0]), where=torch.tensor([False, True]), why="it is used")
    """
    unmapped(values)
    if math.isfinite(values.detach().sum().item()):
        return  # whatever is not finite makes a sum that is not
    wrong = trained(where) & ~values.isfinite()
    if bool(wrong.any()):
        place = torch.nonzero(wrong)[0].tolist()
        got = values[tuple(place)].item()
        raise InputError(f"{name}[{', '.join(map(str, place))}] is {got}, expected a finite number: {why}")


def possible(  # noqa: PLR0913 - a column, where it counts, and what its numbers can be
    name: str, values: Shaped[Tensor, "..."], *, where: Mask, least: float, most: float, slack: float, why: str
) -> None:
    """Refuse a number where it counts that none of its kind can be, by more than rounding makes it.

    Args:
        name: the parameter.
        values: its numbers; NaN is left to :func:`finite`.
        where: True where they count.
        least: the smallest that there is, exactly.
        most: the largest that there is.
        slack: by how much rounding, in half precision too, may exceed the largest.
        why: what the numbers are.

    Raises:
        InputError: naming the first such place.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import possible
        >>> sure = torch.tensor([1e-6, 9.0])
        >>> shown = torch.tensor([True, False])
        >>> possible("logprob", sure, where=shown, least=-torch.inf, most=0.0, slack=0.5, why="a share's log")
    """
    unmapped(values)
    wrong = trained(where) & ((values > most + slack) | (values < least))
    if bool(wrong.any()):
        place = torch.nonzero(wrong)[0].tolist()
        got = values[tuple(place)].item()
        raise InputError(f"{name}[{', '.join(map(str, place))}] is {got}, expected {_span(least, most)}: {why}")


def _span(least: float, most: float) -> str:
    if least == -torch.inf:
        return f"at most {most:g}"
    return f"{least:g} or more" if most == torch.inf else f"from {least:g} to {most:g}"


def probabilities(*, where: Mask, **logprobs: Shaped[Tensor, "..."]) -> None:
    """Refuse what cannot be the log of a probability; what rounding lifts above 0 is none of that.

    Raises:
        InputError: naming the first such place, as where probabilities are given in the place of their logs.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import probabilities
        >>> probabilities(logprob=torch.tensor([0.9]), where=torch.tensor([True]))
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: logprob[0] is 0.8999999761581421, expected at most 0: it is the log of a probability, in nats
    """  # noqa: E501 - a message is one line
    for name, column in logprobs.items():
        why = "it is the log of a probability, in nats"
        possible(name, column, where=where, least=-torch.inf, most=0.0, slack=0.5, why=why)


def answered(result: Shaped[Tensor, "..."], *, mask: Mask, **columns: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The result; where it is not finite, a column that is not on the mask is to blame, and refused.

    What is infinite because finite numbers were too large stays so.

    Raises:
        InputError: naming the first such place.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.checks import answered
        >>> answered(torch.tensor(0.5), mask=torch.tensor([True]), logprob=torch.tensor([0.5]))
        tensor(0.5000)
    """
    unmapped(result)
    if not math.isfinite(result.detach().sum().item()):
        for name, values in columns.items():
            finite(name, values, where=mask, why="a trained token needs one (mask the token to leave it out)")
    return result


#: The widest clip: half precision can say it, and no ratio that anybody trains on is further from 1.
WIDEST = 10_000.0

#: What a whole number stays below, which a tensor can hold.
_WHOLE = 2.0**63


def within(  # noqa: PLR0913 - a number, its range, and what the range says of its ends and of what lies between
    name: str,
    number: float,
    *,
    least: float,
    most: float | None = None,
    open_below: bool = False,
    whole: bool = False,
) -> None:
    """Refuse a number outside its range, and what is none; NaN lies outside of any.

    Args:
        name: the parameter.
        number: its value.
        least: the smallest allowed, or if ``open_below`` the bound that must be exceeded.
        most: the largest allowed; infinity where that means that nothing bounds, None for any finite number.
        open_below: whether ``least`` itself is refused.
        whole: whether what is no whole number is refused.

    Raises:
        InputError: with the range.

    Example:
        >>> from rl_sentinel.signal.checks import within
        >>> within("decay", 0.5, least=0.0, most=1.0)
    """
    if (
        is_number(number)
        and (number > least if open_below else number >= least)
        and (math.isfinite(number) if most is None else number <= most)
        and (not whole or (abs(number) < _WHOLE and number == int(number)))
    ):
        return
    below = f"above {least:g}" if open_below else f"of {least:g} or more" if least > -torch.inf else ""
    endless = is_number(number) and math.isinf(number)
    kind = "a whole number" if whole else "a finite number" if most is None and endless else "a number"
    span = " ".join([kind, *[below] * bool(below)])
    told = number if is_number(number) else repr(number)
    raise InputError(
        f"{name} is {told}, expected {span}" + ("" if most in (None, torch.inf) else f" and at most {most:g}")
    )


def ordered(**bounds: float) -> None:
    """Refuse two bounds that are exchanged, or that are no numbers.

    Args:
        bounds: the lower one, then the upper one, by parameter name.

    Raises:
        InputError: naming the upper one where both are numbers.

    Example:
        >>> from rl_sentinel.signal.checks import ordered
        >>> ordered(low=1.0, high=0.5)
        Traceback (most recent call last):
        rl_sentinel.core.errors.InputError: high is 0.5, expected 1.0 or more: it is the upper bound, and low the lower one
    """  # noqa: E501 - a message is one line
    (lower, least), (upper, most) = bounds.items()
    for name, bound in bounds.items():
        number(name, bound)
        if math.isnan(bound):
            raise InputError(f"{name} is nan, expected a number: it is a bound")
    if least <= most:
        return
    told = f"{upper} is {most}, expected {least} or more"
    raise InputError(f"{told}: it is the upper bound, and {lower} the lower one")
