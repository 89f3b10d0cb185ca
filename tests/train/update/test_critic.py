"""The critic: values before each token, fitted to returns, taken up with the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rl_sentinel.train.config.recipe import Recipe
from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.journal import lines
from rl_sentinel.train.run.loop import train
from rl_sentinel.train.update.critic import Critic, critic_of
from rl_sentinel.train.update.training_batch import prepared
from training import kept_in, recipe, sampled

GAE: dict[str, Any] = {
    "estimator": {"name": "gae", "discount": 1.0, "decay": 0.9},
    "critic": {"rate": 1e-2, "clip": 10.0},
    "rollout": {"prompts": 4, "responses": 4, "tokens": 5},
    "update": {"prompts": 4},
}


def _made(wanted: Recipe) -> tuple[Critic, Any, Any]:
    selection, policy, episodes = sampled(wanted)
    critic = critic_of(policy, wanted.critic)
    assert critic is not None
    with torch.no_grad():
        critic.model.lm_head.weight.normal_()  # type: ignore[union-attr,operator]  # a linear head
    batch, ready = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0, critic=critic)
    return critic, batch, ready


def test_value_stands_before_its_token() -> None:
    """It reads the prompt and what was said before; another token later leaves it."""
    critic, batch, _ = _made(recipe(**GAE))
    laid, row = batch.laid, 3
    start, length = int(laid.prompt_length[row]), int(laid.length[row])
    assert length > 1
    alone = critic.model(laid.token[row : row + 1, : start + length])[0, :, 0]
    torch.testing.assert_close(
        laid.rollout.value[row, :length], alone[start - 1 : start + length - 1], atol=1e-5, rtol=1e-5
    )
    assert (laid.rollout.value[row, length:] == 0).all()
    other = laid.token.clone()
    other[row, start + 1] += 1
    moved = critic.judged(replace(laid, token=other), size=99)
    torch.testing.assert_close(moved[row, :2], laid.rollout.value[row, :2])


def test_returns_are_what_the_estimator_says() -> None:
    """Advantage plus value, on trained tokens; an episode's last advantage is its reward less its value."""
    _, batch, ready = _made(recipe(**GAE))
    value = batch.laid.rollout.value
    last = batch.laid.length - 1
    rows = torch.arange(len(last))
    torch.testing.assert_close(ready.advantage[rows, last], batch.laid.rollout.reward - value[rows, last])
    torch.testing.assert_close(ready.returns[batch.mask], (ready.advantage + value)[batch.mask])


def test_fit_explains_the_returns_whatever_the_parts() -> None:
    """The loss falls over a few fits; parts of three rows come to the same values."""
    found = []
    for rows in (99, 3):
        wanted = recipe(**{**GAE, "update": {"prompts": 4, "rows": rows}})
        critic, batch, ready = _made(wanted)
        fits = [critic.fit(batch.laid, ready, how=wanted.update, order=rng.generator(n)) for n in range(20)]
        assert fits[-1].loss < fits[0].loss / 2
        found.append(critic.judged(batch.laid, size=99))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


def test_run_with_a_critic_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Its weights and moments are part of the checkpoint; its numbers are told."""
    more = {**GAE, "steps": 6, "checkpoint": {"every": 2}}
    train(recipe(tmp_path, **more), kept=kept_in(tmp_path / "cache"))
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    assert {"value_loss", "explained_variance"} <= set(lines(tmp_path / "metrics.jsonl")[0])
    (max((tmp_path / "checkpoints").iterdir()) / "seal.json").unlink()
    train(recipe(tmp_path, **more), kept=kept_in(tmp_path / "cache"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == whole


def test_no_critic_where_none_is_asked_for() -> None:
    """Outcome estimators have none."""
    _, policy, _ = sampled(recipe())
    assert critic_of(policy, None) is None
