"""Discounted suffix sums in a logarithmic number of steps: pairs, pairs of pairs, and so on."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.signal.kernels.modes import traced


def suffix_sums(values: Tensor, discount: float) -> Tensor:
    """Discounted suffix sums, ``y[:, t] = values[:, t] + discount * y[:, t + 1]``.

    The rounding error grows with the logarithm of the width.
    """
    if traced(values):
        return _doubled(values, discount)
    sums: Tensor = _Sums.apply(values, discount)  # type: ignore[no-untyped-call]  # torch has no types here
    return sums


def _spans(width: int, discount: float, dtype: torch.dtype) -> Iterator[tuple[int, float]]:
    """Distance and factor of each doubling, before the factor underflows, because 0 times infinity is NaN."""
    least = torch.finfo(torch.promote_types(dtype, torch.float32)).smallest_normal
    span = 1
    while span < width and (factor := discount**span) >= least:
        yield span, factor
        span *= 2


def _doubled(values: Tensor, discount: float) -> Tensor:
    """:func:`suffix_sums` in plain operations, for forward mode and ``torch.func``."""
    for span, factor in _spans(values.shape[1], discount, values.dtype):
        values = torch.cat([values[:, :-span] + factor * values[:, span:], values[:, -span:]], dim=1)
    return values


class _Sums(torch.autograd.Function):
    """Doubling between two buffers; the gradient is the same sum in the other direction."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, discount: float) -> Tensor:  # noqa: ANN401 - torch has no type for it
        ctx.discount = discount
        sums, wider = values.clone(), torch.empty_like(values)
        for span, factor in _spans(values.shape[1], discount, values.dtype):
            torch.add(sums[:, :-span], sums[:, span:], alpha=factor, out=wider[:, :-span])
            wider[:, -span:] = sums[:, -span:]
            sums, wider = wider, sums  # each position holds its own value and those of the span after it
        return sums

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch has no type for it
        return suffix_sums(slopes[0].flip(1), ctx.discount).flip(1), None
