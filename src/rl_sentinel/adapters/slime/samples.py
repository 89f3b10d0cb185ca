"""slime's samples, and the paths of its modules and methods in each revision."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.row_codecs import Cell, HasLabel, RowLength, RowSequence, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import EXCLUDED
from rl_sentinel.core.call import Function
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec, Inputs, Sizes

SAMPLE = "slime.utils.types.Sample"

#: Classes that convert samples to training data, newest first.
MANAGERS = ("slime.ray.rollout.RolloutManager", "slime.ray.buffer.RolloutController", "slime.ray.buffer.Buffer")

CONVERT = "_convert_samples_to_train_data"

#: Setting -> options; the reward of a sample is a number, or a dict with an entry ``--reward-key``.
REWARDS: Mapping[str, Settings] = {"default": {}, "reward by key": {"reward_key": "score"}}


def reward_dict(reward: float, answer: str) -> dict[str, Any]:
    """A result of a reward model, as a dict with the keys of slime's ``compute_score_dapo`` (rm_hub/__init__.py).

    ``acc`` differs from ``score``, so that reading the wrong key is visible. ``pred`` is the extracted answer, a
    string.
    """
    return {"pred": answer, "acc": reward + 1.0, "score": reward}


@dataclass(frozen=True, slots=True)
class Reward(Cell):
    """The reward of a sample: a number, or a dict in settings with a reward key."""

    @override
    def put(self, inputs: Inputs) -> Any:
        reward = float(Cell.put(self, inputs))
        return reward_dict(reward, "seven") if inputs.settings.get("reward_key") else reward

    def take(self, value: Any, sizes: Sizes) -> Mapping[str, Tensor]:  # noqa: ANN401 - a number or a dict
        """The reward of one row, read from a number or from a dict."""
        return Cell.take(self, value["score"] if isinstance(value, dict) else value, sizes)


#: Field of a sample after the rollout -> its value; a filter sets ``remove_sample``.
_FIELDS: dict[str, Codec] = {
    "group_index": Cell("group", "int"),
    "index": Derived(lambda inputs: inputs.part[0]),
    "response_length": RowLength(),
    "reward": Reward("reward"),
    "loss_mask": RowTokens("mask", "int"),
    "remove_sample": HasLabel("excluded", EXCLUDED["rejected"]),
    "tokens": RowSequence("token", "int"),
    "rollout_log_probs": RowTokens("rollout_logprob"),
}


def _images(inputs: Inputs) -> dict[str, Tensor] | None:
    """The images of a sample, encoded as the processor encodes them. The first sample has only text."""
    row = inputs.part[0]
    return {"pixel_values": torch.full((1, 1), float(row))} if row else None


#: Fields that only some samples have: images, and log-probs of a teacher on a server.
IMAGES: Mapping[str, Codec] = {"multimodal_train_inputs": Derived(_images)}
TEACHER: Mapping[str, Codec] = {"teacher_log_probs": Object(torch.as_tensor, {"data": RowTokens("ref_logprob")})}


def status_of(kinds: Any, truncated: bool) -> Any:  # noqa: ANN401, FBT001 - the target's enumeration
    """The state of a sample: truncated at the maximum length, or completed."""
    return kinds.TRUNCATED if truncated else kinds.COMPLETED


def sample(
    target: Target, *without: str, also: Mapping[str, Codec] = MappingProxyType({}), with_state: bool = False
) -> Object:
    """A sample after the rollout, with the revision's fields and ``also``. If ``with_state``, it may be truncated."""
    named = {**_FIELDS, **also}
    names = set(named)
    if target.has(SAMPLE) and not target.fails(SAMPLE) and is_dataclass(target.find(SAMPLE)):
        names &= {field.name for field in fields(target.find(SAMPLE))} | names_in_conversion(target, *also)
    more: dict[str, Codec] = {}
    if with_state and target.has(f"{SAMPLE}.Status"):
        kinds, truncated = Constant(Function(f"{SAMPLE}.Status")), HasLabel("excluded", EXCLUDED["truncated"])
        more = {"status": Object(status_of, {"kinds": kinds, "truncated": truncated})}
    parts = more | {name: part for name, part in named.items() if name in names and name not in without}
    return Object(_sample, {"kind": Constant(Function(SAMPLE)), **parts}) if also else Object(SAMPLE, parts)


def _sample(kind: Callable[..., Any], **values: Any) -> Any:  # noqa: ANN401 - of that class
    """A sample. In earlier revisions, a reward function also sets attributes that are not fields."""
    known = inspect.signature(kind).parameters
    made = kind(**{name: value for name, value in values.items() if name in known})
    vars(made).update({name: value for name, value in values.items() if name not in known})
    return made


def names_in_conversion(target: Target, *names: str) -> set[str]:
    """The ``names`` that occur in the source of the module that converts samples."""
    source = module_source(target, manager(target).rpartition(".")[0])
    return {name for name in names if name in source}


def manager(target: Target) -> str:
    """The path of the class that converts samples."""
    return next((path for path in MANAGERS if target.has(f"{path}.{CONVERT}")), MANAGERS[0])


def normalization_method(target: Target) -> str:
    """The path of the rollout manager's method that normalizes rewards."""
    names = (f"{manager(target)}.{name}" for name in ("_post_process_rewards", "post_process_rewards"))
    return next((path for path in names if target.has(path)), f"{manager(target)}._post_process_rewards")


def module_source(target: Target, module: str) -> str:
    """The source text of a module, read without an import; empty if this revision has no such file."""
    place = target.root.joinpath(*target.locate(module).split(".")).with_suffix(".py")
    return place.read_text(encoding="utf-8") if place.is_file() else ""
