"""The actor's configuration of verl, as each release has it."""

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rl_sentinel.frameworks.target import Target

#: Neutral name of a number -> verl's, in the section of the actor.
SECTION: Mapping[str, str] = {
    "clip_low": "clip_ratio_low",
    "clip_high": "clip_ratio_high",
    "ceiling": "clip_ratio_c",
    "temperature": "tau_pos",
    "negative_temperature": "tau_neg",
}


def actor(
    target: Target,
    name: str,
    knobs: Mapping[str, Any],
    counted: Mapping[str, Any] = MappingProxyType({}),
    **policy: Any,  # noqa: ANN401 - settings of the loss
) -> Any:  # noqa: ANN401 - the target's class
    """The actor's configuration for a loss; ``knobs`` in the framework's own words.

    ``counted`` are denominators of the whole mini-batch, which the trainer writes into it.
    """
    key = ("actor", name, *(tuple(given.items()) for given in (knobs, counted, policy)))
    return target.kept(key, partial(_actor, target, name, knobs, counted, policy))


def _actor(
    target: Target, name: str, knobs: Mapping[str, Any], counted: Mapping[str, Any], policy: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - the target's class
    if not target.has("verl.workers.config.FSDPActorConfig"):
        more = {f"policy_loss.{word}": value for word, value in policy.items()}
        return _section(target.root, name, (*knobs.items(), *more.items()))
    section = {}
    if target.has("verl.workers.config.PolicyLossConfig"):
        section = {"policy_loss": target.call("verl.workers.config.PolicyLossConfig", loss_mode=name, **policy)}
    path = "verl.workers.config.FSDPActorConfig"
    config = target.call(path, rollout_n=4, ppo_micro_batch_size_per_gpu=4, **section, **knobs)
    if counted:
        config.global_batch_info.update(counted)
    return config


@cache
def _section(root: Path, name: str, knobs: tuple[tuple[str, Any], ...]) -> Any:  # noqa: ANN401 - an OmegaConf section
    """The actor's section of the configuration that ships, before verl had a class for it."""
    from omegaconf import OmegaConf  # noqa: PLC0415 - a package of the target, absent elsewhere

    folder = root / "verl" / "trainer" / "config"
    whole = folder / "_generated_ppo_trainer.yaml"
    config = OmegaConf.load(whole if whole.is_file() else folder / "ppo_trainer.yaml").actor_rollout_ref.actor
    OmegaConf.update(config, "policy_loss.loss_mode", name, force_add=True)
    for key, value in knobs:
        OmegaConf.update(config, key, value, force_add=True)
    return config
