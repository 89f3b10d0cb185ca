"""Packages that verl's code needs at run time, and packages that a stand-alone script needs."""

from rl_sentinel.adapters.installation import Installation, requirement

#: Pinned packages for every release from 0.2 to 0.9.1 and for a current checkout, with their dependencies.
LIGHT = """
omegaconf==2.4.0
PyYAML==6.0.3
tensordict==0.10.0
cloudpickle==3.1.2
pyvers==0.1.0
orjson==3.11.4
packaging==25.0
torchdata==0.11.0
"""

#: Parts of the v1 trainer -> where they were until June 2026.
EARLIER = {
    "verl.trainer.ppo.v1.trainer_base": "verl.trainer.main_ppo_sync",
    "verl.trainer.ppo.v1.trainer_sync.PPOTrainerSync": "verl.trainer.main_ppo_sync.PPOTrainer",
    "verl.trainer.ppo.v1.agent_loop_tq": "verl.trainer.main_ppo_sync",
    "verl.trainer.ppo.v1.utils": "verl.trainer.main_ppo_sync",
}

#: Package of a server -> the engine that it imports, which needs a GPU.
ENGINES = {
    "verl.workers.rollout.vllm_rollout": ("vllm",),
    "verl.workers.rollout.sglang_rollout": ("sglang",),
    "verl.workers.rollout.trtllm_rollout": ("tensorrt_llm",),
}

#: Packages that the trainer imports but verl does not declare as dependencies.
UNDECLARED = ("cachetools", "fastapi", "uvicorn", "TransferQueue", "pillow")


def light(_version: str) -> str:
    """Pinned requirements, one per line."""
    return LIGHT


def installation(version: str) -> Installation:
    """Packages for a script that imports verl: verl and the dependencies that it does not declare."""
    release, note = requirement("verl", version)
    # Vocabulary-parallel functions import Megatron, whose dependencies need a GPU.
    actors = ("AgentLoopWorkerTQ", "FullyAsyncRollouter", "FullyAsyncTrainer", "TRTLLMHttpServer")
    packages = " ".join((release, *UNDECLARED))
    return Installation(packages=packages, alone="megatron-core", note=note, actors=actors, absent=ENGINES)
