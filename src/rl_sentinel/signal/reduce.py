"""Sums and means over trained tokens, each with its denominator given; nothing is hidden by a product."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.checks import checked
from rl_sentinel.signal.segments import Mask, Segments, trained

#: Integers as wide as a number of so many bytes.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Mode = Literal["token-mean", "sequence-mean-token-mean", "sequence-mean-token-sum", "token-sum"]


def selected(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, "*S"]:
    """The values on trained tokens and exactly 0 elsewhere, whatever stood there.

    Example:
        >>> selected(torch.tensor([[1.0, torch.nan]]), mask=torch.tensor([[True, False]]))
        tensor([[1., 0.]])
    """
    checked("B" if values.dim() == 1 else "B T", values=values, mask=mask)
    return _zeroed(values, trained(mask))


def _zeroed(values: Tensor, where: Tensor) -> Tensor:
    """The numbers that count, bit for bit, and 0 elsewhere.

    On a CPU ``torch.where`` asks at each number, which costs two to twenty times as much as to take its bits, as a
    whole number, once or not at all; but what is done to bits no gradient follows.
    """
    tangent = unpack_dual(values).tangent  # type: ignore[no-untyped-call]  # torch has no types here
    followed = values.requires_grad or tangent is not None
    if followed or values.device.type != "cpu":
        return torch.where(where, values, 0.0)
    bits = _BITS[values.element_size()]
    return (values.view(bits) * where).view(values.dtype)


def row_sums(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The sum over each row's trained tokens; 0 for a row without any.

    Example:
        >>> row_sums(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([3., 0.])
        >>> row_sums(torch.tensor([1.0, 2.0, 5.0]), mask=Segments(torch.ones(3).bool(), torch.tensor([2, 1])))
        tensor([3., 5.])
    """
    kept = selected(values, mask=mask)
    if not isinstance(mask, Segments):
        return kept.sum(dim=1)
    empty = torch.zeros(len(mask.length), dtype=torch.float64, device=kept.device)  # as wide as a padded sum, and wider
    return empty.index_add(0, mask.row, kept.double()).to(kept.dtype)


def row_counts(*, mask: Mask) -> Int[Tensor, " B"]:
    """The number of trained tokens of each row.

    Example:
        >>> row_counts(mask=torch.tensor([[True, True], [False, False]]))
        tensor([2, 0])
    """
    checked("B T", mask=mask)
    if not isinstance(mask, Segments):
        return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()  # ten times faster than of bool
    return torch.zeros_like(mask.length).index_add(0, mask.row, mask.mask.to(mask.length.dtype))


def live_rows(mask: Mask) -> Bool[Tensor, " B"]:
    """Which rows have a trained token.

    Example:
        >>> live_rows(torch.tensor([[True, True], [False, False]]))
        tensor([ True, False])
    """
    checked("B T", mask=mask)
    if isinstance(mask, Segments):
        return row_counts(mask=mask) > 0
    return mask.view(torch.uint8).amax(dim=1).bool() if mask.shape[1] else mask.any(dim=1)  # any() is ten times slower


def row_means(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The mean over each row's trained tokens; 0 for a row without any.

    Example:
        >>> row_means(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([1.5000, 0.0000])
    """
    return row_sums(values, mask=mask) / row_counts(mask=mask).clamp(min=1)


def row_maxima(values: Float[Tensor, "*S"], *, mask: Mask) -> Float[Tensor, " B"]:
    """The largest of each row's trained tokens; minus infinity for a row without any.

    Example:
        >>> row_maxima(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [False, False]]))
        tensor([2., -inf])
    """
    checked("B T", values=values, mask=mask)
    kept = torch.where(trained(mask), values, torch.full_like(values, -torch.inf))
    if not isinstance(mask, Segments):
        return kept.amax(dim=1) if kept.shape[1] else kept.new_full((len(kept),), -torch.inf)
    lowest = torch.full((len(mask.length),), -torch.inf, dtype=kept.dtype, device=kept.device)
    return lowest.scatter_reduce(0, mask.row, kept, "amax")


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How token losses become one number, and by what they are divided.

    ``denominator`` is counted over the whole mini-batch and all ranks, never over the micro-batch at
    hand: trained tokens for ``"token-mean"``, live rows for the two sequence means; a
    ``"token-sum"`` may be divided by any number, such as rows times a fixed length.
    """

    mode: Mode
    denominator: float

    def __post_init__(self) -> None:
        """Refuse a denominator that no count can be."""
        if self.mode not in get_args(Mode):
            raise InputError(f"mode is {self.mode!r}, expected one of {', '.join(get_args(Mode))}")
        if not 0 < self.denominator < torch.inf:
            raise InputError(
                f"denominator is {self.denominator}, expected a positive number: "
                "count trained tokens or live rows of the whole mini-batch"
            )


def aggregate(values: Float[Tensor, "*S"], *, mask: Mask, aggregation: Aggregation) -> Float[Tensor, ""]:
    """One number from values per token; the parts of a mini-batch add up to the whole.

    Args:
        values: one number per token; anything off the mask.
        mask: True on trained tokens.
        aggregation: the mode and the denominator.

    Returns:
        The sum over rows, or of each row's mean, by the denominator.

    Raises:
        InputError: if a shape or kind is wrong.

    Example:
        >>> values = torch.tensor([[1.0, 3.0], [8.0, 0.0]])
        >>> mask = torch.tensor([[True, True], [True, False]])
        >>> aggregate(values, mask=mask, aggregation=Aggregation("token-mean", 3.0))
        tensor(4.)
        >>> aggregate(values, mask=mask, aggregation=Aggregation("sequence-mean-token-mean", 2.0))
        tensor(5.)
    """
    checked("B T", values=values, mask=mask)
    by_row = row_means if aggregation.mode == "sequence-mean-token-mean" else row_sums
    return by_row(values, mask=mask).sum() / aggregation.denominator
