"""Losses of a critic, and the entropy of a policy, token by token; a gradient flows to values and logits."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.case import Settings, number_of

#: Name of a reading (an accepted interpretation of the formula) -> its value.
Named = dict[str, Tensor]

#: A value closer than this to the edge of its range counts as on it, in reward units.
EDGE = 1e-5


def _clipped(batch: Batch, settings: Settings) -> Named:
    """The larger of two squared errors: of the value, and of the value clipped around the old value.

    Engstrom et al., Implementation Matters in Deep Policy Gradients (arXiv 2005.12729), section 2.
    """
    plain, near = (batch.value.double() - batch.returns.double()) ** 2, _of_clipped_value(batch, settings)
    larger = torch.where(near > plain, near, plain)
    return {"half the square": larger / 2, "the square": larger}


def _of_clipped_value(batch: Batch, settings: Settings) -> Tensor:
    """The squared error of the value clipped around the old value, as in stable-baselines3's PPO."""
    most, value, old = number_of(settings, "value_clip"), batch.value.double(), batch.old_value
    held = torch.where(value > old + most, old + most, torch.where(value < old - most, old - most, value))
    return (held - batch.returns.double()) ** 2


def at_bound(batch: Batch, settings: Settings) -> Tensor:
    """``[B, T]``: True where the value is at a bound of its range; the gradients of both branches are then right.

    Without ``value_clip`` there is no range, and so no such value.
    """
    most = settings.get("value_clip")
    if most is None:
        return torch.zeros_like(batch.value, dtype=torch.bool)
    return ((batch.value.double() - batch.old_value.double()).abs() - float(most)).abs() < EDGE


def _squared(batch: Batch, _settings: Settings) -> Named:
    square = (batch.value.double() - batch.returns.double()) ** 2
    return {"half the square": square / 2, "the square": square}


def _of_ppo(batch: Batch, settings: Settings) -> Named:
    """The squared error of PPO's paper (arXiv 1707.06347, equation 9); with ``value_clip``, its clipped forms."""
    if settings.get("value_clip") is None:
        return _squared(batch, settings)
    alone = _of_clipped_value(batch, settings)
    return _clipped(batch, settings) | {"half of the clipped one alone": alone / 2, "the clipped one alone": alone}


#: Algorithm -> loss per token, by reading.
VALUE_LOSSES: Mapping[str, Callable[[Batch, Settings], Named]] = {
    "clipped value": _clipped,
    "squared value": _squared,
    "ppo value": _of_ppo,
}


def entropy(batch: Batch) -> Named:
    """Shannon's entropy of each token's distribution over the vocabulary, in nats."""
    weights = torch.exp(batch.logits.double() - batch.logits.double().amax(dim=2, keepdim=True))
    share = weights / weights.sum(dim=2, keepdim=True)
    return {"entropy": -(share * share.log()).sum(dim=2)}
