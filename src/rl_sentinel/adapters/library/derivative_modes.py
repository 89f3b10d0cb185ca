"""Compute outputs in forward mode, or with a gradient that may be differentiated again."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rl_sentinel.core.batch import Batch, with_columns

#: Computes outputs by name from a batch.
Run = Callable[[Batch], Mapping[str, Tensor]]


class _WithSlope(torch.autograd.Function):
    """A value whose derivative by a leaf was computed elsewhere, for the sum of the outputs."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, _leaf: Tensor, slope: Tensor) -> Tensor:  # noqa: ANN401 - torch has no type for it
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:  # noqa: ANN401 - as above
        return None, grads[0].flatten()[0] * ctx.saved_tensors[0], None


def forward(run: Run, batch: Batch, column: str) -> dict[str, Tensor]:
    """The outputs in forward mode; their sum gets the derivative by the column, if the column requires one."""
    leaf = getattr(batch, column)
    directions = torch.eye(leaf.numel(), dtype=leaf.dtype) if leaf.requires_grad else torch.zeros(1, leaf.numel())
    slopes, values = [], dict[str, Tensor]()
    for direction in directions:
        with warnings.catch_warnings(), forward_ad.dual_level():
            # torch's own forward mode uses torch.jit.script when it starts.
            warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
            dual = forward_ad.make_dual(leaf.detach(), direction.reshape(leaf.shape).to(leaf.dtype))  # type: ignore[no-untyped-call]  # torch has no types here
            pairs = {n: forward_ad.unpack_dual(v) for n, v in run(with_columns(batch, **{column: dual})).items()}  # type: ignore[no-untyped-call]  # as above
        values = {n: pair.primal.detach() for n, pair in pairs.items()}
        slopes.append(sum((p.tangent.sum() for p in pairs.values() if p.tangent is not None), leaf.new_zeros(())))
    return _joined(values, leaf, torch.stack(slopes).reshape(leaf.shape)) if leaf.requires_grad else values


def differentiable(run: Run, batch: Batch, column: str) -> dict[str, Tensor]:
    """The outputs; the derivative of their sum by the column is computed as for a second derivative."""
    leaf, values = getattr(batch, column), dict(run(batch))
    total = torch.stack([v.sum() for v in values.values()]).sum()
    if not (leaf.requires_grad and total.requires_grad):
        return values
    (slope,) = torch.autograd.grad(total, leaf, create_graph=True, materialize_grads=True)
    return _joined({n: v.detach() for n, v in values.items()}, leaf, slope.detach())


def _joined(values: dict[str, Tensor], leaf: Tensor, slope: Tensor) -> dict[str, Tensor]:
    """The values, with the slope of their sum at the first, because an audit differentiates the sum."""
    first = next(iter(values))
    return {**values, first: _WithSlope.apply(values[first], leaf, slope)}  # type: ignore[no-untyped-call]  # torch has no types here
