"""Boundary of the optimizer step of AReaL's FSDP engine, with a gradient that is not finite."""

from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.areal.updates import ENGINE
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.overflowing_steps import LARGEST, overflow_boundary
from rl_sentinel.adapters.kit.replacement import bare_instance, replaced_globals
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

PATH = f"{ENGINE}.optimizer_step"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """The boundary of the step, which ``train_batch`` takes after the backward pass."""
    if target.has(PATH) and not target.fails(PATH):
        yield from bindable(target, overflow_boundary(PATH, take_step, "every update whose loss overflows"))


def take_step(owner: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401 - the target's class
    """The step of an engine with one rank."""
    group = SimpleNamespace(get_group=lambda: None)
    engine = bare_instance(
        owner,
        model=model,
        optimizer=optimizer,
        optimizer_config=SimpleNamespace(gradient_clipping=LARGEST),
        lr_scheduler=SimpleNamespace(get_last_lr=lambda: [1.0]),
        _world_mesh=defaultdict(lambda: group),
        world_mesh=defaultdict(lambda: group),
        config=SimpleNamespace(fsdp=SimpleNamespace(offload_params=False, per_layer_optim_step=False)),
    )
    with replaced_globals(owner.optimizer_step.__globals__, fsdp2_clip_grad_norm=clip_gradients):
        engine.optimizer_step()


def clip_gradients(parameters: list[Tensor], *_meshes: object, max_norm: float, **_about: object) -> float:
    """A fake of the function that clips over ranks: it clips the gradients of one rank, and returns their norm."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, max_norm))
