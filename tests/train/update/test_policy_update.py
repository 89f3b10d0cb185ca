"""The policy update: optimizer steps, learning rate, and non-finite gradients."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.config.selection import Selection
from rl_sentinel.train.model.policy import Policy
from rl_sentinel.train.run import rng
from rl_sentinel.train.update.minibatch_gradient import (
    NotFiniteError,
)
from rl_sentinel.train.update.optimizer_step import build_optimizer
from rl_sentinel.train.update.policy_update import learning_rate, update_policy
from rl_sentinel.train.update.training_batch import TrainingBatch
from training import recipe, sample_batch

WIDE = {"prompts": 6, "responses": 4, "tokens": 8}


def _batch(config: Recipe) -> tuple[Selection, Policy, TrainingBatch]:
    selection, policy, _, batch, _ = sample_batch(config, reference=True)
    return selection, policy, batch


def test_update_without_any_advantage_steps_the_optimizer() -> None:
    """With a gradient of 0, so that its step count does not depend on the batch."""
    config = recipe(rollout=WIDE)
    selection, policy, batch = _batch(config)
    dead = replace(batch, advantage=torch.zeros_like(batch.advantage))
    optimizer, kwargs = (
        build_optimizer(policy, config.update),
        {"selection": selection, "recipe": config, "coefficient": 0.0},
    )
    update_policy(policy, optimizer, batch, order=rng.torch_generator(0), **kwargs)  # type: ignore[arg-type]  # as named
    before = [w.detach().clone() for w in policy.model.parameters()]
    result = update_policy(policy, optimizer, dead, order=rng.torch_generator(0), **kwargs)  # type: ignore[arg-type]  # as named
    assert (result.loss, result.norm, bool(result.rows.any())) == (0.0, 0.0, False)
    assert any(not torch.equal(w, b) for w, b in zip(policy.model.parameters(), before, strict=True))


def test_non_finite_gradient_stops_before_the_step() -> None:
    config = recipe(rollout=WIDE)
    selection, policy, batch = _batch(config)
    batch.advantage[batch.mask] *= 1e38
    batch.advantage[batch.mask] *= 1e38
    batch = replace(batch, advantage=torch.nan_to_num(batch.advantage, posinf=3e38, neginf=-3e38))
    before = [w.detach().clone() for w in policy.model.parameters()]
    with pytest.raises(NotFiniteError, match=r"gradient norm (inf|nan), expected finite numbers"):
        update_policy(
            policy,
            build_optimizer(policy, config.update),
            batch,
            selection=selection,
            recipe=config,
            coefficient=0.0,
            order=rng.torch_generator(0),
        )
    assert all(torch.equal(w, b) for w, b in zip(policy.model.parameters(), before, strict=True))


def test_learning_rate_warms_up_and_decays() -> None:
    config = recipe(steps=10, update={"ramp": 4, "rate": 2.0, "schedule": "cosine"})
    assert learning_rate(config, 0) == 0.5
    assert abs(learning_rate(config, 5) - 1.0) < 1e-9
    assert learning_rate(recipe(steps=10, update={"rate": 2.0}), 9) == 2.0
    assert learning_rate(recipe(steps=10, update={"rate": 1.0, "schedule": "linear"}), 5) == 0.5
