"""Read a model's output: functions of its last hidden states and the weight of its output projection."""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

#: Computes from hidden states ``[.., D]`` and the weight ``[V, D]``; where a model has no plain output projection, from
#: logits ``[.., V]`` and None.
Readout = Callable[[Tensor, Tensor | None], Tensor]


def logits(states: Tensor, weight: Tensor | None) -> Tensor:
    """Hidden states times the weight of the output projection; without a weight they are logits already."""
    return states if weight is None else functional.linear(states, weight)


def unchanged(states: Tensor, weight: Tensor | None) -> Tensor:  # noqa: ARG001 - a readout takes both
    """The hidden states themselves; logits where there is no weight."""
    return states
