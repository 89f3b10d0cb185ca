"""SkyRL: generation, advantages (step-wise too), estimators, KL, corrections, losses, prompts, configuration."""

import importlib
from collections.abc import Iterator
from dataclasses import make_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.installation import Installation, requirement
from rl_sentinel.adapters.skyrl import (
    advantages,
    configuration,
    conversations,
    correction,
    evaluation,
    generator,
    kl,
    logit_functions,
    losses,
    metrics,
    micro_batches,
    prompt_filters,
    prompts,
    rollout,
    staleness,
    trainer,
    worker,
)
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound

#: What SkyRL's modules must really run: its log, the base of its configuration, and the progress bar that gathers
#: conversations.
LIGHT = """
loguru==0.7.3
omegaconf==2.4.0
PyYAML==6.0.3
tqdm==4.67.1
"""

#: What the modules of its trainer import; its own requirements name another torch, and kernels for a GPU.
IMPORTED = (
    "numpy aiohttp datasets fastapi httpx jaxtyping loguru omegaconf pandas pydantic torchdata tqdm transformers "
    "uvicorn"
)


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    modules = (
        trainer,
        advantages,
        kl,
        logit_functions,
        correction,
        losses,
        worker,
        prompts,
        generator,
        rollout,
        prompt_filters,
        metrics,
        evaluation,
        conversations,
        configuration,
        staleness,
        micro_batches,
    )
    for module in modules:
        yield from module.boundaries(target)


def _ray() -> ModuleType:
    """Ray in a world of one process: never initialised, its decorator without effect."""

    def remote(*things: object, **_options: object) -> object:
        return things[0] if things else lambda thing: thing

    module = ModuleType("ray")
    vars(module).update(remote=remote, is_initialized=lambda: False)
    return module


def _environment(module: str, name: str) -> ModuleType:
    """The settings of a text environment, which say nothing of training: a class without any."""
    double = ModuleType(module)
    vars(double)[name] = make_dataclass(name, ())
    return double


def _trainer_config() -> ModuleType:
    """The configuration of releases that had a YAML file and no class: the file's own defaults, with its sections."""

    def load() -> object:
        package = importlib.import_module("skyrl_train")
        folder = Path(next(iter(package.__path__)))
        config = importlib.import_module("omegaconf").OmegaConf
        made = config.load(folder / "config" / "ppo_base_config.yaml")
        # validate_cfg adds this field before training starts.
        config.update(made, "trainer.algorithm.max_seq_len", None, force_add=True)
        return made

    module = ModuleType("skyrl.train.config")
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
    )


FRAMEWORK = Framework(
    name="skyrl",
    package="skyrl",
    former=("skyrl_train",),
    distribution="skyrl",
    boundaries=_boundaries,
    light=lambda _version: LIGHT,
    installation=_installation,
    doubles={
        "ray": _ray,
        "skyrl_gym.envs.sql.env": partial(_environment, "skyrl_gym.envs.sql.env", "Text2SQLEnvConfig"),
        "skyrl_gym.envs.search.env": partial(_environment, "skyrl_gym.envs.search.env", "SearchEnvConfig"),
        # Describes requests to a server, nothing of training; refuses some of SkyRL's types on Python 3.11.
        "pydantic": lambda: ModuleType("pydantic"),
    },
    former_doubles={"skyrl.train.config": _trainer_config},
    bare=("skyrl.backends",),
    environment={"LOGURU_LEVEL": "ERROR"},
)
