"""Read facts about a TRL release from its source: configuration fields, trainer methods, and logged metrics."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, TRAINERS
from rl_sentinel.core.call import Use

#: The method that samples, scores and computes advantages.
NAME = "_generate_and_score_completions"


def config_fields(target: Target, kind: str) -> frozenset[str]:
    """The names of the configuration fields of a kind of trainer."""
    return frozenset(fields_of(target, TRAINERS[kind]))


def fields_of(target: Target, trainer: str) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a trainer's configuration, by name; empty if its class is absent or fails to import."""
    path = trainer.replace("_trainer.", "_config.").removesuffix("Trainer") + "Config"
    if not target.has(path) or target.fails(path):
        return {}
    return {f.name: f for f in dataclasses.fields(target.find(path))}


def method(target: Target, trainer: str, *names: str) -> str:
    """The path of the first of these methods that the release has, or the path of the first name if it has none."""
    return next((f"{trainer}.{name}" for name in names if target.has(f"{trainer}.{name}")), f"{trainer}.{names[0]}")


def forwards_to(target: Target, trainer: str) -> str:
    """The path of a trainer; if the trainer only forwards to a base class of the same name, the path of that class."""
    if target.fails(trainer):
        return trainer
    base = target.find(trainer).__bases__[0]
    return f"{base.__module__}.{base.__name__}" if base.__name__ == trainer.rpartition(".")[2] else trainer


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function, without its decorators' wrappers."""
    return inspect.getsource(inspect.unwrap(function))


def reads_tool_mask(target: Target) -> bool:
    """Whether a rollout function can return a mask of environment tokens."""
    path = f"{GRPO}._generate"
    return target.has(path) and "env_mask" in source_of(target.find(path))


def scoring_path(target: Target, kind: str) -> str:
    """The path of the trainer's method that computes advantages. In early releases, this is ``_prepare_inputs``."""
    return method(target, TRAINERS[kind], NAME, "_prepare_inputs")


def log_place(target: Target, kind: str, trainer: Use, mode: str = "train") -> Use:
    """The place where a trainer stores logged metrics."""
    place = trainer.attribute("_metrics")
    return place[mode] if logs_by_mode(target, kind) else place


def logs_by_mode(target: Target, kind: str) -> bool:
    """Whether the trainer has separate logs for training and evaluation."""
    return '{"train": defaultdict' in inspect.getsource(target.find(TRAINERS[kind]))


def shown(value: object, source: str) -> str:
    """How *when* shows a value of a setting: as the member of an enum, where a trainer compares that with a text.

    Such a trainer takes every member for another value, and only the text for its own.

    Example:
        >>> from rl_sentinel.adapters.trl.release import shown
        >>> shown("js", "if self.kind == Kind.JS.value:"), shown("js", "if self.kind == Kind.JS:")
        ('Kind.JS, as a member', 'js')
    """
    member = re.search(rf"\w+\.{re.escape(str(value).upper())}(?=\.value\b)", source)
    return f"{member.group()}, as a member" if member else str(value)
