"""Losses with their gradients, and functions of rows, on blocks of rows: intermediate tensors fit a cache."""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec

import torch
from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.argument_checks import unmapped
from rl_sentinel.signal.kernels import sizes
from rl_sentinel.signal.kernels.modes import traced
from rl_sentinel.signal.reduce import Aggregation
from rl_sentinel.signal.segments import Mask, Segments, trained

P = ParamSpec("P")


#: A value per token, and its slope to the first column at the same token.
Sloped = tuple[Tensor, Tensor]


def summed(
    token_value: Callable[..., Sloped],
    leaf: Float[Tensor, "*S"],
    *columns: Float[Tensor, "*S"],
    mask: Mask,
    aggregation: Aggregation,
) -> Float[Tensor, ""]:
    """``reduce.aggregate`` of a function of tokens, with the gradient to ``leaf`` computed in the forward pass.

    No token depends on another, so the gradient is one number per token. Computing it beside the value takes a third of
    the work of autograd and stores nothing in between. The second derivative is the derivative of the slope. Under
    ``torch.func`` and in forward mode everything is computed in one piece.

    Args:
        token_value: called as ``token_value(mask, leaf, *columns)`` with some rows of each; a value per token and its
            slope to ``leaf`` at the same token, both exactly 0 off the mask.
        leaf: the column that the gradient is taken to.
        columns: the other columns; if one of them requires a gradient, everything is computed in one piece.
        mask: True on trained tokens.
        aggregation: how token values become one number, and the denominator.

    Returns:
        The aggregated number, equal up to rounding for every block size.

    Raises:
        InputError: if a column is mapped by ``torch.vmap``.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kernels.blocks import summed
        >>> from rl_sentinel.signal.reduce import Aggregation, selected
        >>> leaf, mask = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[True, False]])
        >>> squares = lambda mask, x: (selected(x * x, mask=mask), selected(2 * x, mask=mask))
        >>> found = summed(squares, leaf, mask=mask, aggregation=Aggregation("token-mean", 1.0))
        >>> found.backward()
        >>> found.item(), leaf.grad
        (1.0, tensor([[2., 0.]]))
    """
    unmapped(trained(mask), leaf, *columns)
    if any(c.requires_grad for c in columns) or traced(leaf, *columns):
        total = _added(token_value(trained(mask), leaf, *columns)[0], _share(mask, aggregation))
        return (total / aggregation.denominator).to(leaf.dtype)
    return _in_blocks(token_value, leaf, *columns, mask=mask, aggregation=aggregation)


def _in_blocks(
    token_value: Callable[..., Sloped], leaf: Tensor, *columns: Tensor, mask: Mask, aggregation: Aggregation
) -> Tensor:
    share = _share(mask, aggregation)
    total: Tensor = _InBlocks.apply(token_value, share, trained(mask), leaf, *columns)  # type: ignore[no-untyped-call]  # torch has no types here
    return (total / aggregation.denominator).to(leaf.dtype)


def fused(
    kernel: Callable[..., Sloped], *, columns: Callable[..., list[Tensor]] | None = None
) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Decorate a loss: a kernel computes it if the batch is large and no column but the first needs a gradient.

    In forward mode and under ``torch.func``, the formula always does.

    Args:
        kernel: called as ``kernel(mask, *columns, **numbers)``; minus the loss of each token, and its slope to the
            first column.
        columns: makes the columns of the kernel from the columns of the loss and the mask; None if they are the same.

    Returns:
        A decorator for the formula, which is the definition.
    """

    def decorate(formula: Callable[P, Tensor]) -> Callable[P, Tensor]:
        kinds = signature(formula).parameters
        names = [n for n, p in kinds.items() if p.kind is p.POSITIONAL_OR_KEYWORD] + ["chosen"] * ("chosen" in kinds)

        @wraps(formula)
        def loss(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            values: dict[str, Any] = dict(zip(kinds, args, strict=False)) | kwargs
            tensors = [values.pop(n) for n in names]
            if tensors[0].numel() < sizes.LOSS or any(c.requires_grad for c in tensors[1:]) or traced(*tensors):
                return formula(*args, **kwargs)
            mask, aggregation = values.pop("mask"), values.pop("aggregation")
            inputs = tensors if columns is None else columns(*tensors, mask=mask)
            return -_in_blocks(partial(kernel, **values), *inputs, mask=mask, aggregation=aggregation)

        return loss

    return decorate


def by_rows(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Decorate a function of independent rows: if padded columns exceed a CPU's cache, it runs on blocks of rows.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kernels.blocks import by_rows
        >>> @by_rows
        ... def sums(values, *, mask):
        ...     return torch.where(mask, values, 0.0).sum(dim=1)
        >>> sums(torch.tensor([[1.0, 2.0], [5.0, 5.0]]), mask=torch.tensor([[True, True], [True, False]]))
        tensor([3., 5.])
    """
    names = list(signature(function).parameters)

    @wraps(function)
    def in_blocks(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        values: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        mask = values["mask"]
        if isinstance(mask, Segments) or mask.numel() <= sizes.ROWS or mask.device.type != "cpu":
            return function(*args, **kwargs)
        wide = {n: v for n, v in values.items() if isinstance(v, Tensor) and v.shape == mask.shape}
        parts = [
            function(**{**values, **{n: v[rows] for n, v in wide.items()}})  # type: ignore[call-arg]  # all by name
            for rows in _blocks(mask, sizes.ROWS)
        ]
        return torch.cat(parts)

    return in_blocks


def _share(mask: Mask, aggregation: Aggregation) -> Tensor | None:
    """The divisor of each row (packed: of each token) if rows or prompts are averaged first; otherwise None."""
    count = aggregation.shares(mask=mask)
    return count[mask.row] if isinstance(mask, Segments) and count is not None else count


def _added(value: Tensor, share: Tensor | None) -> Tensor:
    """Sum in float32 or wider: it may exceed the range of its type before the division."""
    wide = torch.promote_types(value.dtype, torch.float32)
    if share is None:
        return value.sum(dtype=wide)
    return ((value.sum(dim=1, dtype=wide) if value.dim() > 1 else value.to(wide)) / share).sum()


def _shared(slope: Tensor, share: Tensor | None) -> Tensor:
    if share is None:
        return slope
    return slope / (share.unsqueeze(1) if slope.dim() > 1 else share)


class _InBlocks(torch.autograd.Function):
    """Value and slope of each block together; only the inputs and the gradient are stored."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no type
        token_value: Callable[..., Sloped],
        share: Tensor | None,
        mask: Tensor,
        leaf: Tensor,
        *columns: Tensor,
    ) -> Tensor:
        needs_slope = ctx.needs_input_grad[3]
        slope, parts = torch.empty_like(leaf) if needs_slope else None, []
        for rows in _blocks(leaf, sizes.BLOCK):
            block_share = None if share is None else share[rows]
            value, by_token = token_value(mask[rows], leaf[rows], *(c[rows] for c in columns))
            parts.append(_added(value, block_share))
            if slope is not None:
                slope[rows] = _shared(by_token, block_share)
        ctx.save_for_backward(slope, share, mask, leaf, *columns)
        ctx.token_value = token_value
        return torch.stack(parts).sum() if parts else leaf.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - as above
        slope, share, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            slope = _shared(ctx.token_value(*inputs)[1], share)
        gradient = (grads[0] * slope.to(grads[0].dtype)).to(slope.dtype)
        return (None, None, None, gradient, *[None] * (len(ctx.needs_input_grad) - 4))


def _blocks(values: Tensor, tokens: int) -> Iterator[slice]:
    """Blocks of rows on a CPU; a single block on other devices, because there each kernel launch costs time."""
    size = len(values) if values.device.type != "cpu" else max(1, tokens // max(1, values[:1].numel()))
    yield from (slice(start, start + size) for start in range(0, len(values), size or 1))
