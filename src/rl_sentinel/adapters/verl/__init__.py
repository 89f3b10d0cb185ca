"""Adapter for verl: rewards, advantages, KL, rollout correction, losses, data transport, metrics, configuration."""

from collections.abc import Iterator

from rl_sentinel.adapters.framework import Framework
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl import (
    advantages,
    agent_loop,
    aggregation,
    balance,
    configuration,
    conversations,
    correction,
    critic,
    data_loader,
    data_parallel,
    diagnostics,
    dispatch,
    distillation,
    engine,
    engine_passes,
    kl,
    learning_rates,
    log_probs,
    logit_functions,
    losses,
    megatron,
    megatron_passes,
    metrics,
    mismatch,
    packages,
    response_mask,
    rewards,
    sft,
    single_turn,
    tool_turns,
    training_run,
    training_update,
    trajectories,
    transport,
    validation,
    validation_run,
)
from rl_sentinel.core.boundary import Boundary, Unbound


def _boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    for module in (
        agent_loop,
        tool_turns,
        rewards,
        advantages,
        dispatch,
        trajectories,
        balance,
        transport,
        data_loader,
        training_run,
        training_update,
        response_mask,
        kl,
        correction,
        losses,
        engine,
        distillation,
        data_parallel,
        megatron,
        megatron_passes,
        log_probs,
        engine_passes,
        logit_functions,
        critic,
        learning_rates,
        sft,
        conversations,
        single_turn,
        aggregation,
        metrics,
        validation,
        validation_run,
        diagnostics,
        mismatch,
        configuration,
    ):
        yield from module.boundaries(target)


FRAMEWORK = Framework(
    name="verl",
    package="verl",
    distribution="verl",
    version_file="version/version",
    boundaries=_boundaries,
    light=packages.light,
    installation=packages.installation,
    environment={"VERL_FORCE_DEVICE": "cpu"},
)
