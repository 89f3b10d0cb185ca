"""Losses with their gradients, and statistics of rows, a block of rows at a time: all between fits a cache."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.refusal import unmapped
from rl_sentinel.signal.checks import instance
from rl_sentinel.signal.ratios import traced
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.segments import Mask, Segments, trained

#: Tokens per block of a loss, and of a statistic.
BLOCK, ROWS = 131_072, 262_144


#: What a loss is at each token, and its slope to the first column there.
Sloped = tuple[Tensor, Tensor]


def summed(
    token_value: Callable[..., Sloped],
    leaf: Float[Tensor, "*S"],
    *columns: Float[Tensor, "*S"],
    mask: Mask,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    """What ``reduce.aggregate`` makes of a function of tokens, with the gradient to ``leaf`` taken on the way.

    Since no token depends on another, the gradient is one number per token, and is written down beside the value
    instead of being found backwards: a third of the work, and nothing between is kept. A second derivative is that of
    the slope; under ``torch.func`` and forward derivatives all is done in one piece.

    Args:
        token_value: called as ``token_value(mask, leaf, *columns)`` with some rows of each; a value per token and its
            slope to ``leaf`` at the same token, both exactly 0 off the mask.
        leaf: the column to which the gradient is taken.
        columns: the others; where the gradient to one of these is wanted, all is done in one piece.
        mask: True on trained tokens.
        aggregation: how token values become one number, and by what they are divided.

    Returns:
        The aggregated number; equal to that of one piece up to rounding, whatever the size of a block.

    Raises:
        InputError: if a column is mapped by ``torch.vmap``, or the aggregation is none.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.blocks import summed
        >>> from rl_sentinel.signal.reduce import Aggregation, selected
        >>> leaf, mask = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[True, False]])
        >>> squares = lambda mask, x: (selected(x * x, mask=mask), selected(2 * x, mask=mask))
        >>> found = summed(squares, leaf, mask=mask, aggregation=Aggregation("token-mean", 1.0))
        >>> found.backward()
        >>> found.item(), leaf.grad
        (1.0, tensor([[2., 0.]]))
    """
    instance("aggregation", aggregation, Aggregation, "a mode, and what is divided by")
    unmapped(trained(mask), leaf, *columns)
    share = _share(mask, aggregation)
    if any(c.requires_grad for c in columns) or traced(leaf, *columns):
        whole = _added(token_value(trained(mask), leaf, *columns)[0], share)
    else:
        whole = _InBlocks.apply(token_value, share, trained(mask), leaf, *columns)  # type: ignore[no-untyped-call]  # torch has no types here
    return (whole / aggregation.denominator).to(leaf.dtype)


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
        >>> import torch
        >>> from rl_sentinel.signal.blocks import by_rows
        >>> from rl_sentinel.signal.reduce import row_sums
        >>> values, mask = torch.tensor([[1.0, 2.0], [5.0, 5.0]]), torch.tensor([[True, True], [True, False]])
        >>> by_rows(row_sums, values, mask=mask, size=1)
        tensor([3., 5.])
    """
    if isinstance(mask, Segments):
        return of_rows(*columns, mask=mask)
    parts = [of_rows(*(c[rows] for c in columns), mask=mask[rows]) for rows in _blocks(columns[0], size)]
    return torch.cat(parts) if parts else of_rows(*columns, mask=mask)


def _share(mask: Mask, aggregation: Aggregation) -> Tensor | None:
    """What each row (packed: each token) is divided by where rows, or prompts, are averaged first."""
    count = aggregation.shares(mask=mask)
    return count[mask.row] if isinstance(mask, Segments) and count is not None else count


def _added(value: Tensor, share: Tensor | None) -> Tensor:
    """In float32 or wider, so that a sum may be larger than what it is divided to."""
    wide = torch.promote_types(value.dtype, torch.float32)
    if share is None:
        return value.sum(dtype=wide)
    return ((value.sum(dim=1, dtype=wide) if value.dim() > 1 else value.to(wide)) / share).sum()


def _shared(slope: Tensor, share: Tensor | None) -> Tensor:
    if share is None:
        return slope
    return slope / (share.unsqueeze(1) if slope.dim() > 1 else share)


class _InBlocks(torch.autograd.Function):
    """Value and slope of each block together; beside what was given the gradient of the whole is all that is kept."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        token_value: Callable[..., Sloped],
        share: Tensor | None,
        mask: Tensor,
        leaf: Tensor,
        *columns: Tensor,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[3]
        slope, parts = torch.empty_like(leaf) if wanted else None, []
        for rows in _blocks(leaf, BLOCK):
            own = None if share is None else share[rows]
            value, by_token = token_value(mask[rows], leaf[rows], *(c[rows] for c in columns))
            parts.append(_added(value, own))
            if slope is not None:
                slope[rows] = _shared(by_token, own)
        ctx.save_for_backward(slope, share, mask, leaf, *columns)
        ctx.token_value = token_value
        return torch.stack(parts).sum() if parts else leaf.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        slope, share, *given = ctx.saved_tensors
        if torch.is_grad_enabled():  # this is to be followed once more
            slope = _shared(ctx.token_value(*given)[1], share)
        found = (grads[0] * slope.to(grads[0].dtype)).to(slope.dtype)
        return (None, None, None, found, *[None] * (len(ctx.needs_input_grad) - 4))


def _blocks(values: Tensor, tokens: int) -> Iterator[slice]:
    """Rows, some at a time; on a device other than the CPU all at once, since each call there has its price."""
    size = len(values) if values.device.type != "cpu" else max(1, tokens // max(1, values[:1].numel()))
    yield from (slice(start, start + size) for start in range(0, len(values), size or 1))
