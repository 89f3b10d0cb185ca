"""The tokens, rows or values that a clip fraction counts as clipped, by every accepted definition."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.case import Settings

#: Name of a definition -> its value.
Named = dict[str, Tensor]


def clip_range(settings: Settings) -> tuple[float, float] | None:
    """The allowed distances of a ratio below and above 1; None if the settings have no clip range."""
    low = settings.get("clip_low", settings.get("clip"))
    high = settings.get("clip_high", settings.get("clip"))
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return float(low), float(high)


def clipped(batch: Batch, low: float, high: float) -> Named:
    """Definition -> ``[B, T]``: 1 where the ratio is out of range, or only where the clip also stops the gradient."""
    ratio = (batch.logprob - batch.old_logprob).exp()
    above, below = ratio > 1 + high, ratio < 1 - low
    up, down = above & (batch.advantage > 0), below & (batch.advantage < 0)
    named = {"outside the range": above | below, "where clipping binds": up | down}
    named |= {"above, where it binds": up, "below, where it binds": down}
    return {n: x.double() for n, x in named.items()}


def dual_clipped(batch: Batch, ceiling: float) -> Named:
    """Like :func:`clipped`, for dual clip (arXiv 1912.09729), which bounds the ratio at negative advantages."""
    above = (batch.logprob - batch.old_logprob).exp() > ceiling
    return {"above the ceiling": above.double(), "where the ceiling binds": (above & (batch.advantage < 0)).double()}


def rows_clipped(batch: Batch, settings: Settings) -> Named:
    """Definition -> ``[B]``: 1 at clipped rows.

    A row is judged by the geometric mean of its ratios and by its mean advantage.
    """
    counts = batch.mask.sum(1, keepdim=True).clamp(min=1)
    columns = ("logprob", "old_logprob", "advantage")
    means = {n: torch.where(batch.mask, getattr(batch, n), 0.0).sum(1, keepdim=True) / counts for n in columns}
    cut = clipped(with_columns(batch, **means), *(clip_range(settings) or (0.0, 0.0)))
    return {f"rows {name}": x.squeeze(1) for name, x in cut.items()}


def values_clipped(batch: Batch, most: float) -> Named:
    """Definition -> ``[B, T]``: 1 where the value is out of range, or only where the clipped error is larger."""
    far = (batch.value - batch.old_value).abs() > most
    held = batch.old_value + (batch.value - batch.old_value).clamp(-most, most)
    binds = (held - batch.returns).abs() > (batch.value - batch.returns).abs()
    return {"outside the range": far.double(), "where the held error is larger": (far & binds).double()}
