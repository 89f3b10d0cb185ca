"""Training batches: advantages come from the path alone."""

from typing import Any

import torch

from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.update.training_batch import build_training_batch
from training import recipe, sample_batch, sample_episodes

WIDE = {"prompts": 4, "responses": 4, "tokens": 6}


def test_advantages_are_rewards_minus_their_group_mean() -> None:
    config = recipe(rollout=WIDE, update={"prompts": 4})
    _, _, episodes, batch, ready = sample_batch(config)
    reward = torch.tensor([e.outcome.reward for e in episodes if e.outcome]).view(4, 4)
    expected = (reward - reward.mean(dim=1, keepdim=True)).flatten().unsqueeze(1) * batch.mask
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(batch.advantage, expected)
    assert (batch.old_logprob, batch.ref_logprob, ready.kl) == (None, None, None)


def test_old_logprobs_are_computed_if_policies_can_differ() -> None:
    for more in ({"update": {"prompts": 1}}, {"update": {"epochs": 2}}, {"correction": {"weight": "token_weights"}}):
        config = recipe(rollout=WIDE, **more)
        _, _, _, batch, ready = sample_batch(config)
        assert batch.old_logprob is not None
        sampled_logprob = batch.laid.rollout.rollout_logprob
        assert sampled_logprob is not None
        torch.testing.assert_close(batch.old_logprob[batch.mask], sampled_logprob[batch.mask], atol=2e-5, rtol=1e-5)
        assert (ready.weight is None) == ("correction" not in more)


def test_kl_to_the_reference_reduces_the_reward() -> None:
    config = recipe(rollout=WIDE, kl={"reward": 0.5, "estimator": "k1"})
    selection, policy, episodes = sample_episodes(config)
    reference = policy.frozen_copy()
    with torch.no_grad():
        for weight in reference.model.parameters():
            weight.mul_(0.9)
    batch, ready = build_training_batch(
        config, selection, Models(policy, policy, reference), episodes, step=0, kl_coefficient=0.5
    )
    assert batch.laid.rollout.rollout_logprob is not None
    assert batch.ref_logprob is not None
    assert ready.kl is not None
    raw = (batch.laid.rollout.rollout_logprob - batch.ref_logprob)[batch.mask]
    torch.testing.assert_close(ready.kl[batch.mask], raw)
    reward = torch.tensor([e.outcome.reward for e in episodes if e.outcome])
    torch.testing.assert_close(ready.reward, reward - 0.5 * ready.kl.sum(dim=1), atol=1e-5, rtol=1e-5)


def test_shuffled_rewards_are_a_permutation() -> None:
    config = recipe(rollout={**WIDE, "shuffled_rewards": True})
    _, _, episodes, batch, _ = sample_batch(config)
    earned = [e.outcome.reward for e in episodes if e.outcome]
    shuffled = batch.laid.rollout.reward.tolist()
    torch.testing.assert_close(torch.tensor(sorted(shuffled)), torch.tensor(sorted(earned)))
    assert shuffled != torch.tensor(earned).tolist()


def test_greedy_reward_is_the_baseline_of_remax() -> None:
    config = recipe(rollout=WIDE, update={"prompts": 4}, estimator={"name": "remax"})
    selection, policy, episodes = sample_episodes(config)
    assert "reward_baseline" in selection.reads
    for episode in episodes:
        episode.baseline = 0.25 * episode.group
    models = Models(policy, policy, None)
    batch, _ = build_training_batch(config, selection, models, episodes, step=0, kl_coefficient=0.0)
    relative = torch.tensor([e.outcome.reward - 0.25 * e.group for e in episodes if e.outcome])
    assert float(relative.abs().max()) > 0.5
    torch.testing.assert_close(batch.advantage, relative.unsqueeze(1) * batch.mask)


def test_reward_parts_are_weighted_and_shuffled() -> None:
    estimator = {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 0.0}
    settings: dict[str, Any] = {
        "environment": {"name": "training:TwoParts"},
        "estimator": estimator,
        "update": {"prompts": 4},
    }
    config = recipe(rollout=WIDE, **settings)
    _, _, episodes, batch, _ = sample_batch(config)
    parts = torch.tensor([e.outcome.parts for e in episodes if e.outcome]).view(4, 4, 2)
    deviation = parts.std(dim=1, keepdim=True)
    standardized = torch.where(deviation > 0, (parts - parts.mean(dim=1, keepdim=True)) / deviation, 0.0)
    summed = (standardized * torch.tensor([1.0, 0.5])).sum(dim=2).flatten()
    expected = (summed - summed.mean()) / summed.std()
    assert (deviation > 0).any(dim=0).all()
    torch.testing.assert_close(batch.advantage, expected.unsqueeze(1) * batch.mask)
    _, _, _, control, _ = sample_batch(recipe(rollout={**WIDE, "shuffled_rewards": True}, **settings))
    shuffled = control.laid.rollout
    assert shuffled.reward_parts is not None
    assert shuffled.reward.tolist() == shuffled.reward_parts[:, 0].tolist() != parts[..., 0].flatten().tolist()


def test_squared_probabilities_come_with_old_logprobs() -> None:
    plain = {"name": "grpo", "standardize": False, "epsilon": 0.0}
    for estimator, expected in (({"name": "optimal_token_baseline"}, True), (plain, False)):
        config = recipe(rollout=WIDE, update={"prompts": 4}, estimator=estimator)
        _, _, _, batch, _ = sample_batch(config)
        squares = batch.laid.rollout.pi_squared
        assert (squares is not None, batch.old_logprob is not None) == (expected, expected)
        if squares is not None and batch.old_logprob is not None:
            probability = batch.old_logprob[batch.mask].exp()
            assert (squares[batch.mask] >= probability**2 - 1e-6).all()
            assert (squares[batch.mask] <= 1 + 1e-6).all()
