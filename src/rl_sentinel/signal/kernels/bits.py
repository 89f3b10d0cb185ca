"""Masking and mask reductions by integer operations: on a CPU ``torch.where`` and bool reductions are slow."""

import torch
from torch import Tensor

from rl_sentinel.signal.kernels.modes import traced

#: Integers by the bytes of a number.
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def zeroed(values: Tensor, where: Tensor) -> Tensor:
    """``torch.where(where, values, 0.0)``, two to twenty times as fast on a CPU where no gradient is recorded."""
    if values.requires_grad or not values.is_cpu or traced(values):
        return torch.where(where, values, 0.0)
    bits = _INTEGERS[values.element_size()]
    return (values.view(bits) * where).view(values.dtype)


def count_true(mask: Tensor) -> Tensor:
    """``mask.sum(dim=1)``, ten times as fast."""
    return mask.view(torch.uint8).sum(dim=1, dtype=torch.int32).long()


def any_true(mask: Tensor) -> Tensor:
    """``mask.any(dim=1)``, about ten times as fast on a CPU."""
    return mask.view(torch.uint8).amax(dim=1).bool() if mask.shape[1] else mask.any(dim=1)


def anywhere(mask: Tensor) -> bool:
    """``bool(mask.any())``, ten times as fast."""
    return bool(mask.numel()) and bool(mask.view(torch.uint8).amax())
