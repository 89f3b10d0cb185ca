"""Find the clip range of a policy loss that no name states: the gradient stops at the bounds of the range."""

import math
from collections.abc import Iterable

import torch

from rl_sentinel.adapters.kit.layout_trial import domain_probe, logprob_gradient
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Boundary

#: Distance from a bound at which the gradient is measured, and the smallest gradient that is not rounding.
_BESIDE, _MOVES = 1e-3, 1e-7


def clip_bounds(target: Target, boundary: Boundary, candidates: Iterable[float]) -> dict[str, float] | None:
    """The distances ``clip_low`` and ``clip_high`` of the clip bounds from a ratio of 1; None if they are not found.

    At these bounds, the gradient of the loss starts or stops. They are found even if the loss is wrong: a loss that
    takes the larger of its two products stops at the same ratios, for advantages of the other sign. They are not found
    if the loss raises, if the boundary does not read the columns, or if a side has no or several bounds.

    Args:
        target: where the function is looked up.
        boundary: a policy loss that reads old log-probs and advantages.
        candidates: the distances to try.
    """
    if not {"logprob", "old_logprob", "advantage"} <= boundary.reads:
        return None

    def follows(ratio: float, sign: float) -> bool:
        batch = domain_probe(boundary)
        batch = with_columns(batch, old_logprob=batch.logprob - math.log(ratio))
        advantage = torch.full_like(batch.advantage, sign)
        slopes = [logprob_gradient(target, boundary, batch, x) for x in (advantage, torch.zeros_like(advantage))]
        return bool(((slopes[0] - slopes[1]).abs() > _MOVES).any())

    def changes(bound: float) -> bool:
        return any(follows(bound - _BESIDE, sign) != follows(bound + _BESIDE, sign) for sign in (1.0, -1.0))

    inside = [x for x in dict.fromkeys(candidates) if _BESIDE < x < 1 - _BESIDE]
    try:
        low, high = [x for x in inside if changes(1 - x)], [x for x in inside if changes(1 + x)]
    except Exception:  # noqa: BLE001 - a loss without a gradient is judged by the laws
        return None
    return {"clip_low": low[0], "clip_high": high[0]} if len(low) == len(high) == 1 else None
