"""slime: its boundaries, the packages that they need, and fakes for the parts of Megatron that slime imports."""

from types import ModuleType

from torch import Tensor

from rl_sentinel.adapters.framework import Framework, boundaries_of
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.process_group import parallel_state_of_one_process

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
    "if not dist.is_initialized():  # several tests may share a process",
    '    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)',
    "    parallel_state.initialize_model_parallel()",
)

#: The modules with boundaries, in the order in which they are bound.
MODULES = """
data_source datasets conversations rollout generation rollout_loop trajectories agent_sessions multi_agent
asynchronous_rollout buffered_rollout evaluation advantages distillation teacher_server correction kl logprobs
fp8_weights critic
losses updates weight_updates context_parallel metrics packing routing_replay checkpoints option_defaults
learning_rates chained_optimizers fsdp fsdp_train fsdp_weights rollout_pauses loaded_weights model_copies engine_options
recurrent_layers training_loop
"""


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
    boundaries=boundaries_of(__name__, MODULES),
    light=lambda _version: LIGHT,
    installation=_installation,
    fakes={"megatron.core.mpu": _parallel_state, "megatron.core.fusions.fused_cross_entropy": _cross_entropy},
    bare=("slime.backends.megatron_utils",),
    environment={"TORCHDYNAMO_DISABLE": "1"},
)
