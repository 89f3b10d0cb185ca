"""The metrics of a step, against plain sums over trajectories."""

import torch

from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.step_metrics import compute_step_metrics
from rl_sentinel.train.update.optimizer_step import build_optimizer
from rl_sentinel.train.update.policy_update import update_policy
from rl_sentinel.train.update.training_batch import build_training_batch
from training import recipe, sample_episodes


def test_metrics_are_those_of_the_trajectories() -> None:
    """With two mini-batches, three rows at a time."""
    config = recipe(rollout={"prompts": 4, "responses": 4, "tokens": 6}, update={"epochs": 3, "rows": 3, "rate": 0.05})
    selection, policy, episodes = sample_episodes(config)
    batch, ready = build_training_batch(
        config, selection, Models(policy, policy, None), episodes, step=0, kl_coefficient=0.0
    )
    result = update_policy(
        policy,
        build_optimizer(policy, config.update),
        batch,
        selection=selection,
        recipe=config,
        coefficient=0.0,
        order=rng.torch_generator(0),
    )
    metrics = compute_step_metrics(config, episodes, batch, ready, result, step=0)
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


def test_loss_without_a_clip_has_clip_fraction_0() -> None:
    """It has no clips in its parameters."""
    config = recipe(loss={"name": "reinforce", "aggregation": "token-mean"}, update={"epochs": 2, "rate": 0.1})
    selection, policy, episodes = sample_episodes(config)
    batch, ready = build_training_batch(
        config, selection, Models(policy, policy, None), episodes, step=0, kl_coefficient=0.0
    )
    result = update_policy(
        policy,
        build_optimizer(policy, config.update),
        batch,
        selection=selection,
        recipe=config,
        coefficient=0.0,
        order=torch.Generator(),
    )
    assert compute_step_metrics(config, episodes, batch, ready, result, step=0)["clip_fraction"] == 0.0
