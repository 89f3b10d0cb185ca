"""AReaL: its boundaries, the packages that they need, and the fake Megatron that AReaL imports."""

from collections.abc import Iterator
from types import ModuleType

from rl_sentinel.adapters.areal import (
    advantages,
    batches,
    checkpoints,
    conversations,
    correction,
    data_parallel,
    dataloader,
    early_advantages,
    experts,
    forward,
    fp8_weights,
    incomplete_replies,
    learning_rates,
    lora,
    lora_requests,
    losses,
    micro_batches,
    openai_client,
    overflowing_steps,
    preferences,
    proxy_versions,
    rank_updates,
    remote_rollouts,
    requests,
    reward_model,
    rewards,
    rollout_pauses,
    sessions,
    staleness,
    stats_log,
    supervised,
    teacher,
    training_loop,
    updates,
    versions,
    weight_updates,
    worker_capacity,
    workflows,
)
from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

#: Packages that AReaL's functions call, so that a stub is not enough.
LIGHT = """
colorlog==6.10.1
omegaconf==2.4.0
PyYAML==6.0.3
tensordict==0.10.0
cloudpickle==3.1.2
pyvers==0.1.0
orjson==3.11.4
packaging==25.0
"""

#: Packages that the actor's modules import. AReaL's own requirements pin another torch.
IMPORTED = (
    "numpy aiofiles aiohttp colorlog datasets einops flask httpx hydra-core lark numba openai orjson peft pillow "
    "pybase64 pyyaml ray swanlab tabulate tenacity tensorboardX torchdata trackio transformers uvloop wandb"
)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    for module in (
        rewards,
        batches,
        micro_batches,
        data_parallel,
        versions,
        weight_updates,
        lora,
        lora_requests,
        requests,
        staleness,
        worker_capacity,
        remote_rollouts,
        rollout_pauses,
        proxy_versions,
        dataloader,
        workflows,
        incomplete_replies,
        conversations,
        sessions,
        openai_client,
        advantages,
        early_advantages,
        correction,
        losses,
        teacher,
        supervised,
        preferences,
        updates,
        rank_updates,
        reward_model,
        forward,
        fp8_weights,
        experts,
        training_loop,
        stats_log,
        checkpoints,
        learning_rates,
        overflowing_steps,
    ):
        yield from module.boundaries(target)


def _installation(version: str) -> Installation:
    release, note = requirement("areal", version)
    return Installation(packages=IMPORTED, alone=f"megatron-core {release}", note=note)


def _parallel_state() -> ModuleType:
    """A fake of Megatron's parallel state, in a process without a Megatron model."""
    module = ModuleType("megatron.core.parallel_state")
    vars(module).update({**parallel_state_of_one_process(), "is_initialized": lambda: False})
    return module


FRAMEWORK = Framework(
    name="areal",
    package="areal",
    former=("realhf",),
    distribution="areal",
    boundaries=_boundaries,
    light=lambda _version: LIGHT,
    installation=_installation,
    fakes={"megatron.core.parallel_state": _parallel_state},
)
