"""Rows stored one after another without padding: which tokens are whose, for every function that has a token axis."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from rl_sentinel.core.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """A mask of packed tokens ``[N]``, and how many of them each row has ``[B]``, in order; 0 is allowed.

    It stands wherever a function takes the mask of padded ``[B, T]`` columns: the columns are then ``[N]``, and
    what is one number per row stays ``[B]``. ``row`` ``[N]`` is the row of each token.

    Example:
        >>> Segments(torch.tensor([True, True, False]), torch.tensor([1, 0, 2])).row
        tensor([0, 2, 2])
    """

    mask: Bool[Tensor, " N"]
    length: Int[Tensor, " B"]
    row: Int[Tensor, " N"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no mask, lengths that are none, and those that do not make up the tokens."""
        if self.mask.dtype != torch.bool or self.mask.dim() != 1:
            told = f"{str(self.mask.dtype).removeprefix('torch.')} of shape {list(self.mask.shape)}"
            raise InputError(f"mask is {told}, expected bool of shape [N]: packed tokens stand in one axis")
        if self.length.is_floating_point() or self.length.dtype == torch.bool or self.length.dim() != 1:
            told = f"{str(self.length.dtype).removeprefix('torch.')} of shape {list(self.length.shape)}"
            raise InputError(f"length is {told}, expected whole numbers of shape [B]: the tokens of each row")
        if bool((self.length < 0).any()):
            place = int(torch.nonzero(self.length < 0)[0])
            raise InputError(f"length[{place}] is {int(self.length[place])}, expected 0 tokens or more")
        if int(self.length.sum()) != len(self.mask):
            raise InputError(
                f"length adds up to {int(self.length.sum())}, expected {len(self.mask)}, the tokens of the mask"
            )
        numbers = torch.arange(len(self.length), device=self.mask.device)
        object.__setattr__(self, "row", numbers.repeat_interleave(self.length))


#: What says which tokens train: ``[B, T]`` beside padded columns (``[B]`` beside rows), segments beside packed ones.
Mask = Bool[Tensor, "*S"] | Segments


def packed(values: Shaped[Tensor, "B T"], *, length: Int[Tensor, " B"]) -> Shaped[Tensor, " N"]:
    """Right-padded columns as packed ones: the first ``length`` tokens of each row, one row after another.

    Example:
        >>> packed(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), length=torch.tensor([2, 1]))
        tensor([1., 2., 3.])
    """
    return values[_within(length, values.shape[1])]


def padded(
    values: Shaped[Tensor, " N"], *, length: Int[Tensor, " B"], width: int, fill: float
) -> Shaped[Tensor, "B T"]:
    """Packed columns as right-padded ones of a width, ``fill`` where there is no token.

    Raises:
        InputError: if the lengths do not make up the tokens, or one exceeds the width.

    Example:
        >>> padded(torch.tensor([1.0, 2.0, 3.0]), length=torch.tensor([2, 1]), width=2, fill=0.0)
        tensor([[1., 2.],
                [3., 0.]])
    """
    longest = int(length.max()) if len(length) else 0
    if longest > width:
        raise InputError(f"width is {width}, expected {longest} or more: the longest row")
    if int(length.sum()) != len(values):
        raise InputError(f"length adds up to {int(length.sum())}, expected {len(values)}, the tokens given")
    empty = torch.full((len(length), width), fill, dtype=values.dtype, device=values.device)
    return empty.masked_scatter(_within(length, width), values)


def trained(mask: Mask) -> Bool[Tensor, "*S"]:
    """The mask itself, in the shape of the columns beside it.

    Example:
        >>> trained(Segments(torch.tensor([True]), torch.tensor([1])))
        tensor([True])
    """
    return mask.mask if isinstance(mask, Segments) else mask


def narrowed(mask: Mask, kept: Bool[Tensor, "*S"] | Bool[Tensor, " B"]) -> Mask:
    """The mask of what is trained and kept, by a decision per token or per row.

    Example:
        >>> one = Segments(torch.tensor([True, True, True]), torch.tensor([1, 2]))
        >>> narrowed(one, torch.tensor([False, True])).mask
        tensor([False,  True,  True])
    """
    if isinstance(mask, Segments):
        by_row = kept.shape == mask.length.shape
        return Segments(mask.mask & (kept[mask.row] if by_row else kept), mask.length)
    return mask & (kept.unsqueeze(1) if kept.dim() < mask.dim() else kept)


def rows_taken(mask: Mask, rows: Int[Tensor, " K"]) -> tuple[Mask, Int[Tensor, " P"]]:
    """The mask of some rows, and the places of their tokens along the first axis of the columns beside it.

    Example:
        >>> mask, places = rows_taken(Segments(torch.ones(3).bool(), torch.tensor([2, 1])), torch.tensor([1]))
        >>> mask.length, places
        (tensor([1]), tensor([2]))
    """
    if not isinstance(mask, Segments):
        return mask[rows], rows
    length = mask.length[rows]
    first, before = (mask.length.cumsum(0) - mask.length)[rows], length.cumsum(0) - length
    places = torch.arange(int(length.sum()), device=length.device) + (first - before).repeat_interleave(length)
    return Segments(mask.mask[places], length), places


def turns(mask: Mask) -> Int[Tensor, "*S"]:
    """At each trained token, how many trained ones of its row stand before it; anything elsewhere.

    Example:
        >>> turns(torch.tensor([[True, False, True]]))
        tensor([[0, 0, 1]])
    """
    if not isinstance(mask, Segments):
        return mask.cumsum(dim=1) - 1
    count = torch.zeros_like(mask.length).index_add(0, mask.row, mask.mask.to(mask.length.dtype))
    before = count.cumsum(0) - count
    return mask.mask.cumsum(0) - 1 - before[mask.row]


def _within(length: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=length.device) < length.unsqueeze(1)
