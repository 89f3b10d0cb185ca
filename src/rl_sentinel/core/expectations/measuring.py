"""Functions that expectations share: largest magnitude, allowed rounding, first broken cell."""

import math

import torch
from torch import Tensor

#: Rounding errors allowed per unit of magnitude that enters an output.
ROUNDINGS = 64


def because(text: str, reason: str) -> str:
    """A sentence with its reason, if any, after a colon."""
    return f"{text}: {reason}" if reason else text


def largest(gap: Tensor) -> float:
    """The largest magnitude; infinite if a number is not finite."""
    return math.inf if not bool(gap.isfinite().all()) else gap.abs().max().item()


def rounding(size: float, *tensors: Tensor) -> float:
    """The allowed rounding error of sums of numbers of this size, in the coarsest dtype; float64 counts as float32."""
    kinds = [t.dtype for t in tensors if t.dtype.is_floating_point]
    unit = max((torch.finfo(k).eps for k in kinds if k != torch.float64), default=torch.finfo(torch.float32).eps)
    return ROUNDINGS * unit * (size + 1e-3)


def first_cell(broken: Tensor) -> tuple[int, ...]:
    """The index of the first True cell; the index of the first cell if no cell is True."""
    cells = torch.nonzero(broken)
    return tuple(int(index) for index in cells[0]) if len(cells) else (0,) * broken.dim()


def at_positions(where: Tensor | None, like: Tensor) -> str:
    """Python source that indexes a tensor at the positions in ``where``; empty for all positions."""
    if where is None or bool(where.all()):
        return ""
    return f"[torch.tensor({literal(where.expand(like.shape))})]"


def literal(tensor: Tensor) -> str:
    """A tensor's numbers as Python source."""
    return repr(tensor.tolist()).replace("inf", 'float("inf")').replace("nan", 'float("nan")')
