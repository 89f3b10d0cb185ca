"""Codecs of verl's actor configuration, in the form of each release."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.config_files import default_config
from rl_sentinel.core.case import Settings
from rl_sentinel.core.codec import Codec

ACTOR = "verl.workers.config.FSDPActorConfig"
POLICY = "verl.workers.config.PolicyLossConfig"

#: Neutral name of a number -> verl's name in the actor section.
SECTION: Mapping[str, str] = {
    "clip_low": "clip_ratio_low",
    "clip_high": "clip_ratio_high",
    "ceiling": "clip_ratio_c",
    "temperature": "tau_pos",
    "negative_temperature": "tau_neg",
}


#: The value of OmegaConf for a field that has to be set.
_MISSING = "???"

#: Fields that verl's validation requires.
_REQUIRED: Settings = {"rollout_n": 4, "ppo_micro_batch_size_per_gpu": 4}


#: The optimizer's section; its learning rate has no default from July to August 2025.
_OPTIMIZER = "verl.workers.config.OptimizerConfig"


def required(target: Target, section: str) -> dict[str, Codec]:
    """The fields that the configuration class needs in this release, and those of :func:`optimizer`."""
    known = {field.name for field in fields(target.find(section))}
    return constants(**{name: value for name, value in _REQUIRED.items() if name in known}) | optimizer(target)


def optimizer(target: Target) -> dict[str, Codec]:
    """The optimizer section of a role; empty in releases that lack its class or have a default learning rate."""
    if not target.has(_OPTIMIZER):
        return {}
    defaults = {field.name: field.default for field in fields(target.find(_OPTIMIZER))}
    return {} if defaults["lr"] != _MISSING else {"optim": Object(_OPTIMIZER, constants(lr=1e-6))}


def section_names(settings: Settings) -> dict[str, Codec]:
    """A knob for each name of :data:`SECTION` that is in ``settings``; the keys are verl's names."""
    return {word: Knob(name) for name, word in SECTION.items() if name in settings}


def actor(
    target: Target,
    name: str,
    knobs: Mapping[str, Codec],
    counted: Mapping[str, Codec] | None = None,
    policy: Mapping[str, Codec] | None = None,
) -> Codec:
    """The actor configuration for a loss; ``knobs`` and ``policy`` are fields of its two sections, by verl's names.

    ``counted`` are denominators of the whole mini-batch, which the trainer writes into the configuration. They are
    ignored in releases without the class.
    """
    own = dict(policy or {})
    if not target.has(ACTOR):
        loss = Table({"loss_mode": Constant(name), **own})
        return default_config(target, "actor_rollout_ref.actor", {**knobs, "policy_loss": loss})
    section: dict[str, Codec] = {}
    if target.has(POLICY):
        section = {"policy_loss": Object(POLICY, {"loss_mode": Constant(name), **own})}
    config = Object(ACTOR, {**required(target, ACTOR), **section, **knobs}, shared=not counted)
    if not counted:
        return config
    places = {"config": "", "counts": "global_batch_info"}
    return Object(with_counts, {"config": config, "counts": Table(counted)}, places, shared=True)


def with_counts(config: Any, counts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the framework's class
    """Write the counts of the mini-batch into the configuration, as the trainer does."""
    config.global_batch_info.update(counts)
    return config
