"""Losses with their gradients, and statistics of rows, a block of rows at a time: all between fits a cache."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from rl_sentinel.signal.reduce import Aggregation, row_counts, row_sums, selected
from rl_sentinel.signal.segments import Mask, Segments, trained

#: Tokens per block of a loss, and of a statistic.
BLOCK, ROWS = 32_768, 262_144


def summed(
    token_value: Callable[..., Tensor],
    leaf: Float[Tensor, "*S"],
    *columns: Float[Tensor, "*S"],
    mask: Mask,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    """What ``reduce.aggregate`` makes of a function of tokens, with the gradient to ``leaf`` taken on the way.

    Args:
        token_value: called as ``token_value(mask, leaf, *columns)`` with some rows of each; one number per token,
            of which none depends on another token. Anything may come off the mask.
        leaf: the column to which the gradient is taken, once.
        columns: the others; where the gradient to one of these is wanted, all is done in one piece.
        mask: True on trained tokens.
        aggregation: how token values become one number, and by what they are divided.

    Returns:
        The aggregated number; equal to that of one piece up to rounding, whatever the size of a block.

    Example:
        >>> leaf, mask = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[True, False]])
        >>> found = summed(lambda mask, x: x * x, leaf, mask=mask, aggregation=Aggregation("token-mean", 1.0))
        >>> found.backward()
        >>> found.item(), leaf.grad
        (1.0, tensor([[2., 0.]]))
    """
    share = _share(mask) if aggregation.mode == "sequence-mean-token-mean" else None
    if any(c.requires_grad for c in columns):
        whole = _part(token_value, share, trained(mask), leaf, *columns)
    else:
        whole = _InBlocks.apply(token_value, share, trained(mask), leaf, *columns)  # type: ignore[no-untyped-call]  # torch has no types here
    return whole / aggregation.denominator


def by_rows(
    of_rows: Callable[..., Tensor], *columns: Float[Tensor, "*S"], mask: Mask, size: int = ROWS
) -> Float[Tensor, "..."]:
    """What a function of whole rows gives.

    Args:
        of_rows: called as ``of_rows(*columns, mask=mask)`` with some rows of each; numbers per row or per token, of
            which none depends on another row.
        columns: one number per token.
        mask: True on trained tokens; packed, all is done in one piece.
        size: about how many tokens a block has.

    Returns:
        The same numbers, whatever the size of a block.

    Example:
        >>> values, mask = torch.tensor([[1.0, 2.0], [5.0, 5.0]]), torch.tensor([[True, True], [True, False]])
        >>> by_rows(row_sums, values, mask=mask, size=1)
        tensor([3., 5.])
    """
    if isinstance(mask, Segments):
        return of_rows(*columns, mask=mask)
    parts = [of_rows(*(c[rows] for c in columns), mask=mask[rows]) for rows in _blocks(columns[0], size)]
    return torch.cat(parts) if parts else of_rows(*columns, mask=mask)


def _share(mask: Mask) -> Tensor:
    """What each row (packed: each token) is divided by where rows are averaged first."""
    count = row_counts(mask=mask).clamp(min=1)
    return count[mask.row] if isinstance(mask, Segments) else count


def _part(token_value: Callable[..., Tensor], share: Tensor | None, mask: Tensor, *columns: Tensor) -> Tensor:
    found = token_value(mask, *columns)
    by_row = row_sums(found, mask=mask) if found.dim() > 1 else selected(found, mask=mask)
    return by_row.sum() if share is None else (by_row / share).sum()


class _InBlocks(torch.autograd.Function):
    """Forward and backward of each block together; the gradient of the whole is all that is kept."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        token_value: Callable[..., Tensor],
        share: Tensor | None,
        mask: Tensor,
        leaf: Tensor,
        *columns: Tensor,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[3]
        slope, parts = torch.empty_like(leaf) if wanted else None, []
        for rows in _blocks(leaf, BLOCK):
            own = leaf[rows].detach().requires_grad_(wanted)
            with torch.set_grad_enabled(wanted):
                others = (c[rows] for c in columns)
                part = _part(token_value, None if share is None else share[rows], mask[rows], own, *others)
            if slope is not None:
                slope[rows] = torch.autograd.grad(part, own)[0]
            parts.append(part.detach())
        ctx.save_for_backward(slope)
        return torch.stack(parts).sum() if parts else leaf.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        (slope,) = ctx.saved_tensors
        return (None, None, None, grad * slope, *[None] * (len(ctx.needs_input_grad) - 4))


def _blocks(values: Tensor, tokens: int) -> Iterator[slice]:
    """Rows, some at a time; on a device other than the CPU all at once, since each call there has its price."""
    size = len(values) if values.device.type != "cpu" else max(1, tokens // max(1, values[:1].numel()))
    yield from (slice(start, start + size) for start in range(0, len(values), size or 1))
