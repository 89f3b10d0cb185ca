"""Boundaries of the optimizer steps of verl's actor, critic and training engine, with a gradient that is not finite."""

from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.overflowing_steps import LARGEST, Take, overflow_boundary
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound


def _worker_step(name: str, owner: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401 - the target's class
    """The step of a worker, which names its model and its optimizer after its role."""
    parts = {f"{name}_module": model, f"{name}_optimizer": optimizer}
    worker = bare_instance(owner, **parts, config=SimpleNamespace(grad_clip=LARGEST), scaler=None)
    one_process_group()
    worker._optimizer_step()  # noqa: SLF001 - the target's method


def _engine_step(owner: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # noqa: ANN401
    options = SimpleNamespace(clip_grad=LARGEST)
    engine = bare_instance(
        owner, module=model, optimizer=optimizer, optimizer_config=options, scaler=None, _qat_enabled=False
    )
    one_process_group()
    engine.optimizer_step()


#: Method -> how it is called.
STEPS: Mapping[str, Take] = {
    "verl.workers.actor.dp_actor.DataParallelPPOActor._optimizer_step": partial(_worker_step, "actor"),
    "verl.workers.critic.dp_critic.DataParallelPPOCritic._optimizer_step": partial(_worker_step, "critic"),
    "verl.workers.engine.fsdp.transformer_impl.FSDPEngine.optimizer_step": _engine_step,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the steps that the release has."""
    for path, take in STEPS.items():
        if target.has(path) and not target.fails(path):
            yield from bindable(target, overflow_boundary(path, take, "every update whose loss overflows"))
