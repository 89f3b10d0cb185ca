"""Sums that run from the end of a response to its start, over trained tokens, in blocks."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: Positions that one matrix product covers; smaller blocks carry more often, larger ones multiply more.
BLOCK = 32


def discounted_suffix_sums(values: Float[Tensor, "B T"], *, discount: float) -> Float[Tensor, "B T"]:
    r"""At each position its own value and all later ones, each discounted once per position between.

    .. math:: y_t = x_t + \gamma y_{t+1}

    Args:
        values: one number per position; all count, so hide nothing by a mask here.
        discount: factor per position, from 0 to 1.

    Returns:
        The sums, in the dtype of ``values``; the carry between blocks is kept in float64.

    Example:
        >>> discounted_suffix_sums(torch.tensor([[1.0, 1.0, 1.0]]), discount=0.5)
        tensor([[1.7500, 1.5000, 1.0000]])
    """
    rows, width = values.shape
    blocks = -(-width // BLOCK)
    padded = torch.nn.functional.pad(values, (0, blocks * BLOCK - width)).view(rows, blocks, BLOCK)
    place = torch.arange(BLOCK, dtype=torch.float64, device=values.device)
    apart = place.unsqueeze(1) - place
    powers = torch.where(apart >= 0, discount**apart, torch.zeros_like(apart)).to(values.dtype)
    sums = padded @ powers
    fade = discount ** (BLOCK - place)
    carry = torch.zeros(rows, 1, dtype=torch.float64, device=values.device)
    for block in reversed(range(blocks)):
        whole = sums[:, block] + carry * fade
        carry = whole[:, :1]
        sums[:, block] = whole.to(values.dtype)
    return sums.view(rows, blocks * BLOCK)[:, :width]


def trained_first(*, mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"] | None:
    """Positions of each row with its trained tokens first, in order; None where they stand so already.

    Example:
        >>> trained_first(mask=torch.tensor([[False, True, True]]))
        tensor([[1, 2, 0]])
        >>> trained_first(mask=torch.tensor([[True, True, False]])) is None
        True
    """
    gap = mask[:, 1:] & ~mask[:, :-1]
    return torch.argsort(~mask, dim=1, stable=True) if bool(gap.any()) else None
