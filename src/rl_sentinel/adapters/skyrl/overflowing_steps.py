"""Boundary of the optimizer step of SkyRL's FSDP strategy, with a gradient that is not finite."""

from collections.abc import Iterator
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.overflowing_steps import LARGEST, overflow_boundary
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

PATH = "skyrl.backends.skyrl_train.distributed.fsdp_strategy.FSDPStrategy.optimizer_step"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the step, which the workers of policy and critic take after the backward pass."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, overflow_boundary(PATH, take_step, "every update whose loss overflows"))


def take_step(owner: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401 - the target's class
    """The step of the strategy, without a schedule."""
    strategy = bare_instance(owner, max_norm=LARGEST)
    strategy.optimizer_step(optimizer, model, None)
