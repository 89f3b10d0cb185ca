"""Detect forward-mode autograd and ``torch.func``, under which kernels use plain operations."""

import torch
from torch import Tensor
from torch.autograd import forward_ad


def traced(*columns: Tensor) -> bool:
    """Whether ``torch.func`` is active, or a column has a tangent of forward mode; these support plain operations only.

    Example:
        >>> import torch
        >>> from rl_sentinel.signal.kernels.modes import traced
        >>> traced(torch.ones(2)), torch.func.grad(lambda x: x.sum() * traced(x))(torch.ones(2))
        (False, tensor([1., 1.]))
    """
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001 - torch has no public function for it
        return True
    if forward_ad._current_level < 0:  # noqa: SLF001 - not in forward mode: spares a call for each column
        return False
    return any(forward_ad.unpack_dual(c).tangent is not None for c in columns)  # type: ignore[no-untyped-call]  # torch has no types here
