"""Inspect a release of TRL: configuration fields and trainer methods, read from its source."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO
from rl_sentinel.core.call import Use

#: The method from a sampler's tokens to advantages.
NAME = "_generate_and_score_completions"


def config_fields(target: Target, kind: str) -> frozenset[str]:
    """Fields of a trainer's configuration, ``use_vllm`` among them only where the release corrects for the engine."""
    found = target.find(f"trl.trainer.{kind}_config.{kind.upper()}Config")
    return frozenset(f.name for f in dataclasses.fields(found))


def fields_of(target: Target, trainer: str) -> dict[str, dataclasses.Field[Any]]:
    """The fields of the configuration of a trainer by name; empty where the release has none."""
    path = trainer.replace("_trainer.", "_config.").removesuffix("Trainer") + "Config"
    if not target.has(path) or target.fails(path):
        return {}
    return {f.name: f for f in dataclasses.fields(target.find(path))}


def method(target: Target, trainer: str, *names: str) -> str:
    """The path of the first of these methods that the release has, or of the first one."""
    return next((f"{trainer}.{name}" for name in names if target.has(f"{trainer}.{name}")), f"{trainer}.{names[0]}")


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function without its decorators' wrappers."""
    return inspect.getsource(inspect.unwrap(function))


def reads_tool_mask(target: Target) -> bool:
    """Whether a rollout function can say which tokens are those of an environment."""
    path = f"{GRPO}._generate"
    return target.has(path) and "env_mask" in source_of(target.find(path))


def scoring_path(target: Target, kind: str) -> str:
    """The method of a trainer that makes advantages of what is sampled; that of early releases prepares inputs."""
    return method(target, GRPO if kind == "grpo" else RLOO, NAME, "_prepare_inputs")


def log_place(target: Target, kind: str, trainer: Use, mode: str = "train") -> Use:
    """Where a trainer keeps the numbers that it logs."""
    place = trainer.attribute("_metrics")
    return place[mode] if logs_by_mode(target, kind) else place


def logs_by_mode(target: Target, kind: str) -> bool:
    """Whether what training and evaluation log is kept apart."""
    return '{"train": defaultdict' in inspect.getsource(target.find(GRPO if kind == "grpo" else RLOO))
