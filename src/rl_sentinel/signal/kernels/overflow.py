"""Gradients of ratios that may overflow: 0 times an infinite ratio is 0, where autograd gives NaN."""

from typing import Any

import torch
from torch import Tensor


def product(ratio: Tensor, gain: Tensor) -> Tensor:
    """``ratio * gain``, but 0 instead of NaN where the ratio is infinite and the gain is 0."""
    return torch.where((gain == 0) & ratio.isinf(), 0.0, ratio * gain)


def weighed(ratio: Tensor, gain: Tensor) -> Tensor:
    """:func:`product`, differentiable any number of times."""
    result: Tensor = _Weighed.apply(ratio, gain)  # type: ignore[no-untyped-call]  # torch has no types here
    return result


def exponential(log_ratio: Tensor) -> Tensor:
    """``log_ratio.exp()``; a gradient of 0 stays 0, also where the ratio overflows."""
    result: Tensor = _Exponential.apply(log_ratio)  # type: ignore[no-untyped-call]  # torch has no types here
    return result


def _times(slope: Tensor, factor: Tensor) -> Tensor:
    """The product of the chain rule, itself differentiable."""
    return weighed(factor, slope) if slope.requires_grad or factor.requires_grad else product(factor, slope)


class _Weighed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ratio: Tensor, gain: Tensor) -> Tensor:
        return product(ratio, gain)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004 - the signature of torch
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - as above
        ratio, gain = ctx.saved_tensors
        return _times(slopes[0], gain), _times(slopes[0], ratio)

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor) -> Tensor:  # noqa: ANN401 - as above
        ratio, gain = ctx.saved_tensors
        return _times(moves[0], gain) + _times(moves[1], ratio)


class _Exponential(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(log_ratio: Tensor) -> Tensor:
        return log_ratio.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004 - the signature of torch
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401 - as above
        return _times(slopes[0], ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor) -> Tensor:  # noqa: ANN401 - as above
        return _times(moves[0], ctx.saved_tensors[0])
