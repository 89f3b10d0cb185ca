"""The critic: values before each token, fitted to returns, saved in checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.journal import read_metrics
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.update.critic import Critic, build_critic
from rl_sentinel.train.update.training_batch import build_training_batch
from training import folder_cache, recipe, sample_episodes

GAE: dict[str, Any] = {
    "estimator": {"name": "gae", "discount": 1.0, "decay": 0.9},
    "critic": {"rate": 1e-2, "clip": 10.0},
    "rollout": {"prompts": 4, "responses": 4, "tokens": 5},
    "update": {"prompts": 4},
}


def _build(config: Recipe) -> tuple[Critic, Any, Any]:
    selection, policy, episodes = sample_episodes(config)
    critic = build_critic(policy, config.critic)
    assert critic is not None
    with torch.no_grad():
        critic.model.lm_head.weight.normal_()  # type: ignore[union-attr,operator]  # a linear head
    batch, ready = build_training_batch(
        config, selection, Models(policy, policy, None), episodes, step=0, kl_coefficient=0.0, critic=critic
    )
    return critic, batch, ready


@pytest.mark.on_cpu
def test_value_precedes_its_token() -> None:
    critic, batch, _ = _build(recipe(**GAE))
    laid, row = batch.laid, 3
    start, length = int(laid.prompt_length[row]), int(laid.length[row])
    assert length > 1
    alone = critic.model(laid.token[row : row + 1, : start + length])[0, :, 0]
    torch.testing.assert_close(
        laid.rollout.value[row, :length], alone[start - 1 : start + length - 1], atol=1e-5, rtol=1e-5
    )
    assert (laid.rollout.value[row, length:] == 0).all()
    changed = laid.token.clone()
    changed[row, start + 1] += 1
    moved = critic.predict(replace(laid, token=changed), update=recipe(**GAE).update)
    torch.testing.assert_close(moved[row, :2], laid.rollout.value[row, :2])


def test_returns_are_advantage_plus_value() -> None:
    _, batch, ready = _build(recipe(**GAE))
    value = batch.laid.rollout.value
    last = batch.laid.length - 1
    rows = torch.arange(len(last))
    torch.testing.assert_close(ready.advantage[rows, last], batch.laid.rollout.reward - value[rows, last])
    torch.testing.assert_close(ready.returns[batch.mask], (ready.advantage + value)[batch.mask])


@pytest.mark.on_cpu
def test_fit_reduces_the_loss_for_parts_of_any_size() -> None:
    values = []
    for limit in ({"rows": 99}, {"rows": 3}, {"tokens": 20}):
        config = recipe(**{**GAE, "update": {"prompts": 4, **limit}})
        critic, batch, ready = _build(config)
        fits = [critic.fit(batch.laid, ready, update=config.update, order=rng.torch_generator(n)) for n in range(20)]
        assert fits[-1].loss < fits[0].loss / 2
        values.append(critic.predict(batch.laid, update=config.update))
    for value in values[1:]:
        torch.testing.assert_close(values[0], value, atol=1e-4, rtol=1e-4)


def test_run_with_a_critic_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    more = {**GAE, "steps": 6, "checkpoint": {"every": 2}}
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    assert {"value_loss", "explained_variance"} <= set(read_metrics(tmp_path / "metrics.jsonl")[0])
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    train(recipe(tmp_path, **more), cache=folder_cache(tmp_path / "cache"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


@pytest.mark.parametrize("limit", [{"rows": 1}, {"rows": 3}, {"tokens": 20}])
def test_parts_are_as_small_as_those_of_the_policy(limit: dict[str, int]) -> None:
    config = recipe(**{**GAE, "update": {"prompts": 4, **limit}})
    critic, batch, ready = _build(config)
    shapes: list[torch.Size] = []
    critic.model.register_forward_pre_hook(lambda _model, given: shapes.append(given[0].shape))
    critic.fit(batch.laid, ready, update=config.update, order=rng.torch_generator(0))
    critic.predict(batch.laid, update=config.update)
    assert sum(rows for rows, _ in shapes) == 2 * len(batch.laid.length)
    if limit == {"rows": 1}:  # no padding
        lengths = (batch.laid.prompt_length + batch.laid.length).tolist()
        assert sorted(width for _, width in shapes) == sorted(lengths * 2)
    for rows, width in shapes:
        assert rows <= limit.get("rows", 99)
        assert rows == 1 or rows * width <= limit.get("tokens", 999)


def test_layers_are_computed_again_for_the_same_fit() -> None:
    losses, saved = [], []
    for recompute in (False, True):
        config = recipe(**GAE)
        selection, policy, episodes = sample_episodes(config)
        critic = build_critic(policy, config.critic, recompute=recompute)
        assert critic is not None
        batch, ready = build_training_batch(
            config, selection, Models(policy, policy, None), episodes, step=0, kl_coefficient=0.0, critic=critic
        )
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, kept=kept: kept.append(x.numel()) or x, lambda x: x):  # type: ignore[misc]  # a list that counts
            losses.append(critic.fit(batch.laid, ready, update=config.update, order=rng.torch_generator(0)).loss)
        saved.append(sum(kept))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert saved[1] < saved[0] / 2


def test_no_critic_without_settings() -> None:
    _, policy, _ = sample_episodes(recipe())
    assert build_critic(policy, None) is None
