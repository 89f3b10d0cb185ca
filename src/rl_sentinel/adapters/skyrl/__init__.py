"""SkyRL: its boundaries, the packages that they need, and stubs of packages that SkyRL imports."""

import importlib
import json
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from rl_sentinel.adapters.framework import Framework, boundaries_of
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.kit.record import Record, field

#: Packages that SkyRL's functions call, so that a stub is not enough. tqdm's ``gather`` runs the conversations.
LIGHT = """
loguru==0.7.3
omegaconf==2.4.0
PyYAML==6.0.3
tqdm==4.67.1
"""

#: Packages that the trainer's modules import. SkyRL's own requirements pin another torch and need GPU kernels.
IMPORTED = (
    "numpy aiohttp cloudpathlib datasets fastapi greenlet httpx jaxtyping loguru omegaconf pandas psutil pydantic "
    "sqlmodel torchdata tqdm transformers uvicorn"
)

#: The package of the configuration.
_CONFIG = "skyrl.train.config"

#: The modules with boundaries, in the order in which they are bound.
MODULES = """
trainer advantages kl logit_functions context_parallel correction losses prompt_mean forward_passes mesh_dispatch
model_forward meta_init worker critic_worker megatron_worker supervised packed_supervised tinker_backend tinker_losses
tinker_sampling tinker_queue prompts inference_clients engine_replies engine_options generator generator_metrics
rollout incomplete_outputs overlong_penalty async_rollout step_merging prompt_filters dynamic_sampling
cut_trajectories training_loop weight_updates weight_buckets lora_servers loop_steps supervised_evaluation
supervised_loop metrics evaluation evaluation_dump conversations configuration overrides staleness micro_batches
micro_batch_counts mini_batches jax_checkpoints learning_rates optimizer_rates optimizers overflowing_steps
"""


def _ray() -> ModuleType:
    """A stub of Ray, which is never initialized; ``ray.remote`` returns the class unchanged."""

    def remote(*decorated: object, **_options: object) -> object:
        return decorated[0] if decorated else lambda thing: thing

    module = ModuleType("ray")
    vars(module).update(remote=remote, is_initialized=lambda: False)
    return module


def _environment(module: str, name: str) -> ModuleType:
    """A stub of a text environment's settings: a class without fields, since training reads none of them."""
    stub = ModuleType(module)
    vars(stub)[name] = make_dataclass(name, ())
    return stub


def _pydantic() -> ModuleType:
    """A stub of pydantic, whose models store their fields and check nothing."""
    module = ModuleType("pydantic")
    vars(module).update(BaseModel=Record, Field=field)
    return module


def _orjson() -> ModuleType:
    """A fake orjson that uses the standard library, which reads and writes the same data."""
    module = ModuleType("orjson")
    vars(module).update(
        loads=json.loads,
        dumps=lambda value, *_options: json.dumps(value).encode(),
        JSONDecodeError=json.JSONDecodeError,
    )
    return module


def _trainer_config() -> ModuleType:
    """A configuration class for releases that have only YAML files: it loads the defaults in these files."""

    def load() -> object:
        package = importlib.import_module("skyrl_train")
        folder = Path(next(iter(package.__path__)), "config")
        omega_conf = importlib.import_module("omegaconf").OmegaConf
        config = omega_conf.load(folder / "ppo_base_config.yaml")
        entries = (entry for entry in config.get("defaults", ()) if entry != "_self_")
        for section, file in (item for entry in entries for item in entry.items()):
            group, _, place = section.partition("@")
            if place:  # as Hydra, which reads the file of the group into this place
                omega_conf.update(config, place, omega_conf.load(folder / group / f"{file}.yaml"), force_add=True)
        # validate_cfg adds this field before training starts.
        omega_conf.update(config, "trainer.algorithm.max_seq_len", None, force_add=True)
        if "step_wise_training" in config.trainer:  # the path of this option until 20 December 2025
            omega_conf.update(config, "generator.step_wise_trajectories", value=False, force_add=True)
            config.trainer.step_wise_training = "${generator.step_wise_trajectories}"
        return config

    module = ModuleType(_CONFIG)
    vars(module)["SkyRLTrainConfig"] = load
    return module


def _installation(version: str) -> Installation:
    release, note = requirement("skyrl", version)
    old = version.startswith(("0.1.", "0.2."))
    return Installation(
        packages=f"{IMPORTED} ray=={'2.51.1' if old else '2.56.0'}",
        alone=f"{release} skyrl-gym",
        python="" if version.startswith("0.1.") else "3.12",
        note=note,
        absent={
            "skyrl_train.workers.megatron": ("megatron", "transformer_engine"),
            "skyrl.tx": ("flax", "jax", "optax", "peft"),
        },
    )


FRAMEWORK = Framework(
    name="skyrl",
    package="skyrl",
    former=("skyrl_train",),
    distribution="skyrl",
    boundaries=boundaries_of(__name__, MODULES),
    light=lambda _version: LIGHT,
    installation=_installation,
    fakes={
        "ray": _ray,
        "skyrl_gym.envs.sql.env": partial(_environment, "skyrl_gym.envs.sql.env", "Text2SQLEnvConfig"),
        "skyrl_gym.envs.search.env": partial(_environment, "skyrl_gym.envs.search.env", "SearchEnvConfig"),
        # It rejects some of SkyRL's types on Python 3.11.
        "pydantic": _pydantic,
        "orjson": _orjson,
    },
    former_fakes={_CONFIG: _trainer_config},
    earlier={f"{_CONFIG}.SkyRLTrainConfig": f"{_CONFIG}.SkyRLConfig"},  # its name in February 2026
    bare=("skyrl.backends",),
    environment={"LOGURU_LEVEL": "ERROR"},
)
