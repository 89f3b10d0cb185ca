"""TRL: the boundaries of its online, preference, supervised and distillation trainers."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import (
    dataset_preparation,
    distillation,
    distillation_steps,
    early_losses,
    kto,
    log_probs,
    logit_metrics,
    losses,
    nash_md,
    packages,
    packing,
    ppo,
    preferences,
    rollout_batch,
    rollout_metrics,
    samplers,
    scoring,
    supervised,
    updates,
)
from rl_sentinel.core.boundary import Boundary, Unbound


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    ppo.restore_former_names()
    for module in (
        scoring,
        rollout_metrics,
        samplers,
        rollout_batch,
        early_losses,
        losses,
        log_probs,
        updates,
        preferences,
        kto,
        logit_metrics,
        supervised,
        dataset_preparation,
        packing,
        nash_md,
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
