"""slime: its boundaries, the packages that they need, and fakes for the parts of Megatron that slime imports."""

from collections.abc import Iterator
from types import ModuleType

from torch import Tensor

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.process_group import parallel_state_of_one_process
from rl_sentinel.adapters.slime import (
    advantages,
    agent_sessions,
    asynchronous_rollout,
    buffered_rollout,
    checkpoints,
    context_parallel,
    conversations,
    correction,
    critic,
    data_source,
    datasets,
    distillation,
    evaluation,
    fp8_weights,
    fsdp,
    fsdp_train,
    fsdp_weights,
    generation,
    kl,
    learning_rates,
    logprobs,
    losses,
    metrics,
    multi_agent,
    option_defaults,
    packing,
    rollout,
    rollout_loop,
    routing_replay,
    teacher_server,
    trajectories,
    updates,
    weight_updates,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

#: slime's functions only need torch; its modules import these packages.
LIGHT = """
packaging==25.0
PyYAML==6.0.3
"""

#: Packages that the modules of its rollout and its loss import, including those that SGLang imports.
IMPORTED = (
    "numpy aiohttp httpx ipython msgspec orjson packaging pillow pybase64 pyyaml pyzmq ray starlette transformers "
    "triton wandb"
)

#: A loss reads its rank and the group sizes from Megatron: here, one process.
SETUP = (
    "import torch.distributed as dist",
    "from megatron.core import parallel_state",
    'dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)',
    "parallel_state.initialize_model_parallel()",
)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    for module in (
        data_source,
        datasets,
        conversations,
        rollout,
        generation,
        rollout_loop,
        trajectories,
        agent_sessions,
        multi_agent,
        asynchronous_rollout,
        buffered_rollout,
        evaluation,
        fp8_weights,
        advantages,
        distillation,
        teacher_server,
        correction,
        kl,
        logprobs,
        critic,
        losses,
        updates,
        weight_updates,
        context_parallel,
        metrics,
        packing,
        routing_replay,
        checkpoints,
        option_defaults,
        learning_rates,
        fsdp,
        fsdp_train,
        fsdp_weights,
    ):
        yield from module.boundaries(target)


def _parallel_state() -> ModuleType:
    module = ModuleType("megatron.core.mpu")
    vars(module).update(parallel_state_of_one_process())
    return module


def _cross_entropy() -> ModuleType:
    """A fake for Megatron's vocabulary-parallel cross entropy, on one process that has the whole vocabulary."""
    module = ModuleType("megatron.core.fusions.fused_cross_entropy")

    def cross_entropy(logits: Tensor, tokens: Tensor, _group: object = None) -> Tensor:
        return -logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    vars(module)["fused_vocab_parallel_cross_entropy"] = cross_entropy
    return module


def _installation(version: str) -> Installation:
    release, note = requirement("slime", version)
    return Installation(
        packages=IMPORTED,
        alone=f"megatron-core sglang sglang-router {release}",
        note=note,
        setup=dict.fromkeys(("slime.backends.megatron_utils", "slime.observability"), SETUP),
        actors=("RolloutManager",),
    )


FRAMEWORK = Framework(
    name="slime",
    package="slime",
    boundaries=_boundaries,
    light=lambda _version: LIGHT,
    installation=_installation,
    fakes={"megatron.core.mpu": _parallel_state, "megatron.core.fusions.fused_cross_entropy": _cross_entropy},
    bare=("slime.backends.megatron_utils",),
    environment={"TORCHDYNAMO_DISABLE": "1"},
)
