"""Probability ratios and their products: an infinite ratio times 0 is 0, in the forward and backward pass."""

from jaxtyping import Float
from torch import Tensor

from rl_sentinel.core.argument_checks import unmapped
from rl_sentinel.signal.kernels import overflow


def weighed(ratio: Float[Tensor, "*S"], gain: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Multiply ratios and gains; 0 where an infinite ratio meets a gain of 0.

    Args:
        ratio: exponentials of log-ratios, infinite where one overflows its type.
        gain: the factors of the ratios.

    Returns:
        The product; NaN where either is NaN. No bound is put on the ratio.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ratios import weighed
        >>> weighed(torch.tensor([2.0, torch.inf]), torch.tensor([3.0, 0.0]))
        tensor([6., 0.])
    """
    unmapped(ratio)
    differentiated = ratio.requires_grad or gain.requires_grad
    return overflow.weighed(ratio, gain) if differentiated else overflow.product(ratio, gain)


def exponential(log_ratio: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Ratios from log-ratios; a gradient of 0 stays 0, also where the ratio overflows.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.ratios import exponential
        >>> log_ratio = torch.tensor([0.0, 100.0], requires_grad=True)
        >>> exponential(log_ratio).clamp(max=2.0).sum().backward()
        >>> log_ratio.grad
        tensor([1., 0.])
    """
    return overflow.exponential(log_ratio) if log_ratio.requires_grad else log_ratio.exp()
