"""Packed rows, stored one after another without padding; accepted by every function with a token axis."""

from dataclasses import dataclass, field
from operator import index

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.core.phrasing import shortened

#: Largest number of axes of a mask: rows and their tokens.
_AXES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """A mask of packed tokens ``[N]``, and the number of tokens of each row ``[B]``, which may be 0.

    Pass it as the mask instead of a padded mask ``[B, T]``: columns per token are then ``[N]``, and columns
    per row stay ``[B]``. ``row`` ``[N]`` is the row of each token.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import Segments
        >>> Segments(torch.tensor([True, True, False]), torch.tensor([1, 0, 2])).row
        tensor([0, 2, 2])
    """

    mask: Bool[Tensor, " N"]
    length: Int[Tensor, " B"]
    row: Int[Tensor, " N"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate the mask and the lengths, which add up to the number of tokens."""
        if not isinstance(self.mask, Tensor) or self.mask.dtype != torch.bool or self.mask.dim() != 1:
            raise InputError(
                f"mask is {_form(self.mask)}, expected a bool tensor of shape [N]: packed tokens have one axis"
            )
        length = lengths(self.length)
        if int(length.sum()) != len(self.mask):
            raise InputError(
                f"length adds up to {int(length.sum())}, expected {len(self.mask)}, the tokens of the mask"
            )
        numbers = torch.arange(len(length), device=self.mask.device)
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "row", numbers.repeat_interleave(length))


#: A mask of trained tokens: ``[B, T]`` for padded columns (``[B]`` for rows), ``Segments`` for packed columns.
Mask = Bool[Tensor, "*S"] | Segments


def packed(values: Shaped[Tensor, "B T"], *, length: Int[Tensor, " B"]) -> Shaped[Tensor, " N"]:
    """Pack right-padded columns: the first ``length`` tokens of each row, one row after another.

    Raises:
        InputError: if there is not one length for each row, or one is negative or exceeds the width.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import packed
        >>> packed(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), length=torch.tensor([2, 1]))
        tensor([1., 2., 3.])
    """
    _require_tensor(values)
    if values.dim() < 2 or len(values) != len(length := lengths(length)):
        shape = f"[{len(length)}, T]" if len(length) else "[B, T]"
        raise InputError(f"values have shape {list(values.shape)}, expected {shape}: a row of tokens for each length")
    width = values.shape[1]
    if bool((length > width).any()):
        row = int(torch.nonzero(length > width)[0])
        raise InputError(
            f"length[{row}] is {int(length[row])}, expected at most {width}: that is the width of the values"
        )
    return values[_within(length, width)]


def padded(
    values: Shaped[Tensor, " N"], *, length: Int[Tensor, " B"], width: int, fill: float
) -> Shaped[Tensor, "B T"]:
    """Right-pad packed columns to a width, with ``fill`` where there is no token.

    Raises:
        InputError: if a length is negative or exceeds the width, if the lengths do not add up to the tokens, or if the
            dtype cannot hold ``fill``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import padded
        >>> padded(torch.tensor([1.0, 2.0, 3.0]), length=torch.tensor([2, 1]), width=2, fill=0.0)
        tensor([[1., 2.],
                [3., 0.]])
    """
    length = lengths(length)
    _require_tensor(values)
    _require_room(length, width)
    if values.dim() != 1:
        raise InputError(f"values have shape {list(values.shape)}, expected [N]: packed tokens have one axis")
    if int(length.sum()) != len(values):
        raise InputError(f"length adds up to {int(length.sum())}, expected {len(values)}, the tokens given")
    try:
        empty = values.new_full((), fill).expand(len(length), width)
    except (TypeError, RuntimeError, OverflowError):
        dtype = str(values.dtype).removeprefix("torch.")
        raise InputError(f"fill is {shortened(fill)}, expected a number that a tensor of {dtype} can hold") from None
    return empty.masked_scatter(_within(length, width), values)


def trained(mask: Mask) -> Bool[Tensor, "*S"]:
    """The mask as a tensor, in the shape of the columns.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import Segments, trained
        >>> trained(Segments(torch.tensor([True]), torch.tensor([1])))
        tensor([True])
    """
    return mask.mask if isinstance(mask, Segments) else mask


def narrowed(mask: Mask, kept: Bool[Tensor, "*S"] | Bool[Tensor, " B"], *, of_rows: bool) -> Mask:
    """Narrow a mask by a decision per row or per token.

    Args:
        mask: True on trained tokens, padded or packed.
        kept: one decision per row, or per token.
        of_rows: True if decisions are per row; the shape does not show it if there are as many packed tokens as rows.

    Raises:
        InputError: if there is not one decision for each row, or for each token.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import Segments, narrowed
        >>> one = Segments(torch.tensor([True, True, True]), torch.tensor([1, 2]))
        >>> narrowed(one, torch.tensor([False, True]), of_rows=True).mask
        tensor([False,  True,  True])
    """
    if not isinstance(of_rows, bool):
        raise InputError(f"of_rows is {shortened(of_rows)}, expected a bool: whether decisions are per row")
    rows, where = _count(mask, axes=1 + of_rows), trained(mask)
    wanted = [rows] if of_rows else list(where.shape)
    if not isinstance(kept, Tensor) or kept.dtype != torch.bool or list(kept.shape) != wanted:
        each = "row" if of_rows else "token"
        raise InputError(
            f"kept is {_form(kept)}, expected a bool tensor of shape {wanted}: one decision for each {each}"
        )
    if isinstance(mask, Segments):
        return Segments(where & (kept[mask.row] if of_rows else kept), mask.length)
    return where & (kept.unsqueeze(1) if of_rows else kept)


def rows_taken(mask: Mask, rows: Int[Tensor, " K"]) -> tuple[Mask, Int[Tensor, " P"]]:
    """The mask of some rows, and the positions along the first axis of the columns: rows, or packed tokens.

    Raises:
        InputError: if a row does not exist.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import Segments, rows_taken
        >>> mask, places = rows_taken(Segments(torch.ones(3).bool(), torch.tensor([2, 1])), torch.tensor([1]))
        >>> mask.length, places
        (tensor([1]), tensor([2]))
    """
    count, rows = _count(mask, axes=1), _whole("rows", rows, "K")
    if bool(((rows < 0) | (rows >= count)).any()):
        place = int(torch.nonzero((rows < 0) | (rows >= count))[0])
        expected = f"a number from 0 to {count - 1}: a row of the mask" if count else "no row: the mask has none"
        raise InputError(f"rows[{place}] is {int(rows[place])}, expected {expected}")
    if not isinstance(mask, Segments):
        return mask[rows], rows
    length = mask.length[rows]
    first, before = (mask.length.cumsum(0) - mask.length)[rows], length.cumsum(0) - length
    places = torch.arange(int(length.sum()), device=length.device) + (first - before).repeat_interleave(length)
    return Segments(mask.mask[places], length), places


def turns(mask: Mask) -> Int[Tensor, "*S"]:
    """At each trained token, the number of trained tokens before it in its row; undefined elsewhere.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import turns
        >>> turns(torch.tensor([[True, False, True]]))
        tensor([[0, 0, 1]])
    """
    _count(mask, axes=2)
    if not isinstance(mask, Segments):
        return mask.cumsum(dim=1) - 1
    count = torch.zeros_like(mask.length).index_add(0, mask.row, mask.mask.to(mask.length.dtype))
    before = count.cumsum(0) - count
    return mask.mask.cumsum(0) - 1 - before[mask.row]


def _count(mask: Mask, *, axes: int) -> int:
    """Return the number of rows of a mask; raise if it is not a mask, or has fewer than ``axes`` axes."""
    if isinstance(mask, Segments):
        return len(mask.length)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or not axes <= mask.dim() <= _AXES:
        shape = "[B, T]" if axes > 1 else "[B] or [B, T]"
        raise InputError(f"mask is {_form(mask)}, expected a bool tensor of shape {shape}, or Segments")
    return len(mask)


def _require_tensor(values: object) -> None:
    if not isinstance(values, Tensor):
        raise InputError(f"values are {_form(values)}, expected a tensor: torch.as_tensor makes one")


def _form(got: object) -> str:
    if not isinstance(got, Tensor):
        return f"of type {type(got).__name__}"
    return f"{str(got.dtype).removeprefix('torch.')} of shape {list(got.shape)}"


def _whole(name: str, numbers: Tensor, axis: str) -> Tensor:
    """Return the numbers as int64; raise if they are not integers of shape ``[axis]``."""
    odd = not isinstance(numbers, Tensor) or numbers.is_floating_point() or numbers.is_complex()
    if odd or numbers.dtype == torch.bool or numbers.dim() != 1:
        raise InputError(f"{name} is {_form(numbers)}, expected a tensor of integers of shape [{axis}]")
    return numbers.long()


def lengths(length: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The number of tokens of each row as int64, so that arithmetic does not overflow.

    Raises:
        InputError: if they are not whole numbers ``[B]``, or one is negative.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.segments import lengths
        >>> lengths(torch.tensor([2, 0], dtype=torch.uint8)) - 5
        tensor([-3, -5])
    """
    length = _whole("length", length, "B")
    if bool((length < 0).any()):
        place = int(torch.nonzero(length < 0)[0])
        raise InputError(f"length[{place}] is {int(length[place])}, expected 0 tokens or more")
    return length


def _require_room(length: Tensor, width: int) -> None:
    longest = int(length.max()) if len(length) else 0
    try:
        width = index(width)
    except TypeError:
        raise InputError(
            f"width is {shortened(width)}, expected an integer of at least {longest}, the length of the longest row"
        ) from None
    if width < longest:
        raise InputError(f"width is {width}, expected at least {longest}, the length of the longest row")
    if width >= 2**63:
        raise InputError(f"width is {shortened(width)}, expected less than 2**63: it is a number of tokens")


def _within(length: Tensor, width: int) -> Tensor:
    return torch.arange(width, device=length.device) < length.unsqueeze(1)
