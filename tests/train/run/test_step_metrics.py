"""The metrics of a step, against plain sums over trajectories."""

from dataclasses import replace
from typing import Any

import torch

from rl_sentinel.signal.ready import Ready
from rl_sentinel.signal.reduce import live_rows
from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.rollout.episodes import Episode
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.step_metrics import compute_step_metrics
from rl_sentinel.train.update.optimizer_step import build_optimizer
from rl_sentinel.train.update.policy_update import UpdateResult, update_policy
from rl_sentinel.train.update.training_batch import TrainingBatch
from training import recipe, sample_batch


def _step(**settings: Any) -> tuple[Recipe, list[Episode], TrainingBatch, Ready, UpdateResult]:
    config = recipe(**settings)
    selection, policy, episodes, batch, ready = sample_batch(config)
    components = {"selection": selection, "recipe": config}
    optimizer, order = build_optimizer(policy, config.update), rng.torch_generator(0)
    result = update_policy(policy, optimizer, batch, **components, coefficient=0.0, order=order)  # type: ignore[arg-type]  # by name
    return config, episodes, batch, ready, result


def _update(**settings: Any) -> tuple[list[Episode], dict[str, Any]]:
    config, episodes, batch, ready, result = _step(**settings)
    return episodes, compute_step_metrics(config, episodes, batch, ready, result, step=0)


def test_metrics_are_those_of_the_trajectories() -> None:
    rollout = {"prompts": 4, "responses": 4, "tokens": 6}
    episodes, metrics = _update(rollout=rollout, update={"epochs": 3, "rows": 3, "rate": 0.05})
    outcomes = [e.outcome for e in episodes if e.outcome]
    logprobs = [x for e in episodes for x in e.steps[0].logprob]
    assert abs(metrics["reward"] - sum(o.reward for o in outcomes) / 16) < 1e-9
    assert metrics["accuracy"] == sum(o.correct for o in outcomes) / 16
    assert metrics["response_length"] == len(logprobs) / 16
    assert abs(metrics["entropy"] + sum(logprobs) / len(logprobs)) < 1e-5
    assert metrics["ended"] == sum(e.ended for e in episodes) / 16
    groups = [{o.reward for o in outcomes[n : n + 4]} for n in range(0, 16, 4)]
    assert metrics["dead_groups"] == sum(len(g) == 1 for g in groups) / 4
    assert 0 < metrics["clip_fraction"] < 1
    assert metrics["kl"] > 1e-4


def test_kl_is_a_mean_over_tokens_that_are_not_rejected() -> None:
    """The KL of a rejected token is 0; as a part of the mean, it would lower what the controller reads."""
    config, episodes, batch, ready, result = _step()
    mask = batch.mask.clone()
    mask[0] = False
    rejected = replace(ready, mask=mask, kept=live_rows(mask), kl=torch.where(mask, 0.5, 0.0))
    assert compute_step_metrics(config, episodes, batch, rejected, result, step=0)["kl"] == 0.5


def test_loss_without_a_clip_has_clip_fraction_0() -> None:
    _, metrics = _update(loss={"name": "reinforce", "aggregation": "token-mean"}, update={"epochs": 2, "rate": 0.1})
    assert metrics["clip_fraction"] == 0.0
