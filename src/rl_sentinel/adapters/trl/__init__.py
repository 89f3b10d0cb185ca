"""TRL: rollouts, rewards, advantages, losses and logged numbers of its online trainers."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import (
    assembly,
    bco,
    checkpoints,
    distillation,
    distillation_steps,
    early_losses,
    early_steps,
    log_averages,
    log_probs,
    logit_metrics,
    losses,
    packages,
    packing,
    pair_accumulation,
    pair_ranks,
    ppo,
    precomputed,
    preferences,
    preparation,
    rollout_metrics,
    sampler_ranks,
    samplers,
    scoring,
    self_play,
    supervised,
    templates,
    tool_loop,
    unpaired,
    unscored_rewards,
    updates,
)
from rl_sentinel.core.boundary import Boundary, Unbound


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    ppo.restore_former_names()
    for module in (
        scoring,
        unscored_rewards,
        rollout_metrics,
        checkpoints,
        samplers,
        sampler_ranks,
        assembly,
        early_losses,
        early_steps,
        losses,
        log_probs,
        updates,
        preferences,
        unpaired,
        bco,
        pair_accumulation,
        precomputed,
        pair_ranks,
        logit_metrics,
        supervised,
        preparation,
        packing,
        templates,
        tool_loop,
        log_averages,
        self_play,
        distillation,
        distillation_steps,
        ppo,
    ):
        yield from module.boundaries(target)


FRAMEWORK = Framework(
    name="trl",
    package="trl",
    distribution="trl",
    boundaries=_boundaries,
    light=packages.light,
    installation=packages.installation,
    environment={"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"},
)
