"""Ratios of probabilities and what they weigh: one that overflows beside a 0 gives 0, forwards and backwards."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from rl_sentinel.core.refusal import unmapped


def weighed(ratio: Float[Tensor, "*S"], gain: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """The product, and 0 where a ratio that has overflowed weighs nothing; no bound is put on the ratio.

    Args:
        ratio: exponentials of log-ratios, infinite where one is too large for its type.
        gain: what they weigh.

    Returns:
        The product; NaN where either is.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ratios import weighed
        >>> weighed(torch.tensor([2.0, torch.inf]), torch.tensor([3.0, 0.0]))
        tensor([6., 0.])
    """
    if ratio.requires_grad or gain.requires_grad:
        found: Tensor = _Weighed.apply(ratio, gain)  # type: ignore[no-untyped-call]  # torch has no types here
        return found
    return _product(ratio, gain)


def exponential(log_ratio: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Ratios from their logs; where no gradient arrives none goes on, also from one that has overflowed.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ratios import exponential
        >>> log_ratio = torch.tensor([0.0, 100.0], requires_grad=True)
        >>> exponential(log_ratio).clamp(max=2.0).sum().backward()
        >>> log_ratio.grad
        tensor([1., 0.])
    """
    if log_ratio.requires_grad:
        found: Tensor = _Exponential.apply(log_ratio)  # type: ignore[no-untyped-call]  # torch has no types here
        return found
    return log_ratio.exp()


def _product(ratio: Tensor, gain: Tensor) -> Tensor:
    """On a CPU a sum, which is finite where all numbers are, tells that there is nothing to mend."""
    unmapped(ratio)
    if ratio.device.type == "cpu" and math.isfinite(ratio.sum().item()):
        return ratio * gain
    return torch.where((gain == 0) & ratio.isinf(), 0.0, ratio * gain)


def _times(slope: Tensor, factor: Tensor) -> Tensor:
    """As above, to be followed once more: a slope of 0 is cut off only beside what has overflowed."""
    return weighed(factor, slope)


class _Weighed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ratio: Tensor, gain: Tensor) -> Tensor:
        return torch.where((gain == 0) & ratio.isinf(), 0.0, ratio * gain)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004 - torch has no type for it, and passes all
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - nor here
        ratio, gain = ctx.saved_tensors
        return _times(slopes[0], gain), _times(slopes[0], ratio)

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor) -> Tensor:  # noqa: ANN401 - nor here
        ratio, gain = ctx.saved_tensors
        return _times(moves[0], gain) + _times(moves[1], ratio)


class _Exponential(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(log_ratio: Tensor) -> Tensor:
        return log_ratio.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ANN401, ARG004 - as above
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401 - nor here
        return _times(slopes[0], ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx: Any, *moves: Tensor) -> Tensor:  # noqa: ANN401 - nor here
        return _times(moves[0], ctx.saved_tensors[0])


def traced(*columns: Tensor) -> bool:
    """Whether derivatives are taken forwards, or by ``torch.func``: both follow plain operations alone.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ratios import traced
        >>> traced(torch.ones(2)), torch.func.grad(lambda x: x.sum() * traced(x))(torch.ones(2))
        (False, tensor([1., 1.]))
    """
    active: bool = torch._C._are_functorch_transforms_active()  # noqa: SLF001 - torch says it nowhere else
    return active or any(unpack_dual(c).tangent is not None for c in columns)  # type: ignore[no-untyped-call]  # nor here
