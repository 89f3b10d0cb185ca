"""AReaL: its boundaries, the packages that they need, and the fake Megatron that AReaL imports."""

from types import ModuleType

from rl_sentinel.adapters.framework import Framework, boundaries_of
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.process_group import parallel_state_of_one_process

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

#: The modules with boundaries, in the order in which they are bound.
MODULES = """
rewards batches micro_batches data_parallel versions weight_updates lora lora_requests requests staleness
worker_capacity server_commands engine_workers remote_rollouts rollout_pauses proxy_versions dataloader sampled_epochs
workflows incomplete_replies conversations sessions openai_client advantages early_advantages correction losses teacher
supervised preferences updates rank_updates reward_model forward experts fp8_weights training_loop stats_log
checkpoints learning_rates master_weights overflowing_steps
"""


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
    boundaries=boundaries_of(__name__, MODULES),
    light=lambda _version: LIGHT,
    installation=_installation,
    fakes={"megatron.core.parallel_state": _parallel_state},
)
