"""Discounted suffix sums over trained tokens, and the reordering that moves trained tokens to the front."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from rl_sentinel.signal.kernels import bits, doubling, sizes
from rl_sentinel.signal.reduce import selected
from rl_sentinel.signal.requirements import FRACTION
from rl_sentinel.signal.segments import Mask, Segments, turns
from rl_sentinel.signal.validation import validate


@validate(discount=FRACTION)
def discounted_suffix_sums(values: Float[Tensor, "B T"], *, discount: float) -> Float[Tensor, "B T"]:
    r"""At each position, the sum of its value and all later values, discounted once per position.

    .. math:: y_t = x_t + \gamma y_{t+1}

    Args:
        values: one number per position; all positions count, because there is no mask.
        discount: factor per position, from 0 to 1.

    Returns:
        The sums, in the dtype of ``values``.

    Raises:
        InputError: if ``values`` is not a padded column of numbers, or ``discount`` is not from 0 to 1.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.scan import discounted_suffix_sums
        >>> discounted_suffix_sums(torch.tensor([[1.0, 1.0, 1.0]]), discount=0.5)
        tensor([[1.7500, 1.5000, 1.0000]])
    """
    if discount == 0:  # 0 times infinity is NaN
        return values.clone()
    if values.shape[1] >= sizes.SUMS:
        return doubling.suffix_sums(values, discount)
    sums = list(values.unbind(dim=1))
    for t in reversed(range(len(sums) - 1)):
        sums[t] = sums[t] + discount * sums[t + 1]
    return torch.stack(sums, dim=1) if sums else values


@validate()
def trained_first(*, mask: Mask) -> Int[Tensor, "B K"] | None:
    """The positions of each row's trained tokens, in order; None if they come first already in all (padded) rows.

    For padded rows ``K`` is the width, and untrained tokens follow. For packed rows it is the largest number of
    trained tokens of a row; shorter rows are filled with the position after the last token.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.scan import trained_first
        >>> from rl_sentinel.signal.segments import Segments
        >>> trained_first(mask=torch.tensor([[False, True, True]]))
        tensor([[1, 2, 0]])
        >>> trained_first(mask=torch.tensor([[True, True, False]])) is None
        True
        >>> trained_first(mask=Segments(torch.tensor([False, True, True, True]), torch.tensor([3, 1])))
        tensor([[1, 2],
                [3, 4]])
    """
    if not isinstance(mask, Segments):
        gaps = bits.anywhere(mask[:, 1:] & ~mask[:, :-1])
        return torch.argsort(~mask, dim=1, stable=True) if gaps else None
    place, turn = torch.nonzero(mask.mask).squeeze(1), turns(mask)[mask.mask]
    most = int(turn.max()) + 1 if len(turn) else 0
    order = torch.full((len(mask.length), most), len(mask.mask), device=place.device)
    order[mask.row[mask.mask], turn] = place
    return order


def lined_up(values: Shaped[Tensor, "*S"], *, mask: Mask, order: Int[Tensor, "B K"] | None) -> Shaped[Tensor, "B K"]:
    """Move trained tokens to the front: reorder a column by the result of :func:`trained_first`; None leaves it as is.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.scan import lined_up, trained_first
        >>> from rl_sentinel.signal.segments import Segments
        >>> mask = Segments(torch.tensor([False, True, True]), torch.tensor([2, 1]))
        >>> lined_up(torch.tensor([5.0, 6.0, 7.0]), mask=mask, order=trained_first(mask=mask))
        tensor([[6.],
                [7.]])
    """
    if order is None:
        return values
    if not isinstance(mask, Segments):
        return values.gather(1, order)
    return torch.cat([values, torch.zeros_like(values[:1]) if len(values) else values.new_zeros(1)])[order]


def put_back(values: Float[Tensor, "B K"], *, mask: Mask, order: Int[Tensor, "B K"] | None) -> Float[Tensor, "*S"]:
    """Undo :func:`lined_up`; exactly 0 at untrained tokens.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.scan import put_back, trained_first
        >>> mask = torch.tensor([[False, True]])
        >>> put_back(torch.tensor([[6.0, 5.0]]), mask=mask, order=trained_first(mask=mask))
        tensor([[0., 6.]])
    """
    if order is None:
        return selected(values, mask=mask)
    if not isinstance(mask, Segments):
        return selected(torch.zeros_like(values).scatter(1, order, values), mask=mask)
    empty = torch.zeros(len(mask.mask) + 1, dtype=values.dtype, device=values.device)
    return empty.scatter(0, order.flatten(), values.flatten())[:-1]
