"""Detect policy losses that normalize their advantages, as CleanRL's PPO does."""

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.layout_trial import domain_probe, outputs_on
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, with_columns
from rl_sentinel.core.boundary import Boundary

#: Relative difference of two losses that is rounding or an offset in the divisor, and the rounding of float32 sums.
_RELATIVE, _ROUNDING = 1e-4, 1e-6


def normalizes_advantages(target: Target, boundary: Boundary) -> bool:
    """Whether the loss is the same for rescaled and shifted advantages, but not for reordered advantages."""
    if "advantage" not in boundary.reads or "loss" not in boundary.outputs:
        return False
    batch = domain_probe(boundary)
    advantage = torch.linspace(-1.5, 2.0, batch.rows).unsqueeze(1) + torch.linspace(-0.3, 0.4, batch.width)
    ratio = torch.linspace(-0.05, 0.04, batch.mask.numel()).reshape(batch.mask.shape)
    batch = with_columns(batch, logprob=batch.old_logprob + ratio)

    def loss(values: Tensor) -> float:
        return float(outputs_on(target, boundary, _within_domain(boundary, batch, values))["loss"])

    try:
        plain, scaled, shifted, other = map(loss, (advantage, 3 * advantage, advantage + 1, advantage.flip(0)))
    except Exception:  # noqa: BLE001 - a function that cannot be called is judged by the audit
        return False
    return _near(plain, scaled) and _near(plain, shifted) and not _near(plain, other)


def _within_domain(boundary: Boundary, batch: Batch, advantage: Tensor) -> Batch:
    changed = with_columns(batch, advantage=advantage)
    return changed if boundary.domain is None else boundary.domain(changed)


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _ROUNDING + _RELATIVE * max(abs(one), abs(other))
