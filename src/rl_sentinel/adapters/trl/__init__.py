"""TRL: the boundaries of its online, preference, supervised and distillation trainers."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl import (
    async_loss,
    async_metrics,
    bco,
    chatml,
    checkpoints,
    collated_labels,
    dataset_preparation,
    distillation,
    distillation_steps,
    early_losses,
    early_steps,
    gmpo,
    kto,
    log_averages,
    log_probs,
    logit_metrics,
    losses,
    nash_md,
    packages,
    packing,
    pair_accumulation,
    pair_ranks,
    ppo,
    precomputed,
    preferences,
    reward_model,
    rollout_batch,
    rollout_metrics,
    sampler_ranks,
    samplers,
    sampling,
    scoring,
    sdpo,
    supervised,
    templates,
    tool_counts,
    tool_loop,
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
        rollout_batch,
        sampler_ranks,
        sampling,
        early_losses,
        early_steps,
        losses,
        gmpo,
        sdpo,
        async_loss,
        async_metrics,
        log_probs,
        updates,
        preferences,
        reward_model,
        kto,
        bco,
        pair_accumulation,
        precomputed,
        pair_ranks,
        logit_metrics,
        supervised,
        dataset_preparation,
        collated_labels,
        packing,
        nash_md,
        templates,
        chatml,
        tool_counts,
        tool_loop,
        log_averages,
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
