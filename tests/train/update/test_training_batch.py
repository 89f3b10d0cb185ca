"""From trajectories to advantages, through the path alone."""

from typing import Any

import torch

from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.update.training_batch import prepared
from training import recipe, sampled

WIDE = {"prompts": 4, "responses": 4, "tokens": 6}


def test_advantages_are_rewards_less_their_groups_mean() -> None:
    """By hand, over all trained tokens and nowhere else."""
    wanted = recipe(rollout=WIDE, update={"prompts": 4})
    selection, policy, episodes = sampled(wanted)
    batch, ready = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    reward = torch.tensor([e.outcome.reward for e in episodes if e.outcome]).view(4, 4)
    expected = (reward - reward.mean(dim=1, keepdim=True)).flatten().unsqueeze(1) * batch.mask
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(batch.advantage, expected)
    assert (batch.old_logprob, batch.ref_logprob, ready.kl) == (None, None, None)


def test_policy_before_the_update_is_asked_where_it_will_have_moved() -> None:
    """With several optimizer steps, or a correction."""
    for more in ({"update": {"prompts": 1}}, {"update": {"epochs": 2}}, {"correction": {"weight": "token_weights"}}):
        wanted = recipe(rollout=WIDE, **more)
        selection, policy, episodes = sampled(wanted)
        batch, ready = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
        assert batch.old_logprob is not None
        told = batch.laid.rollout.rollout_logprob
        assert told is not None
        torch.testing.assert_close(batch.old_logprob[batch.mask], told[batch.mask], atol=2e-5, rtol=1e-5)
        assert (ready.weight is None) == ("correction" not in more)


def test_reference_is_priced_in_the_reward() -> None:
    """A KL above 0 takes off, and stays raw for the log."""
    wanted = recipe(rollout=WIDE, kl={"reward": 0.5, "estimator": "k1"})
    selection, policy, episodes = sampled(wanted)
    reference = policy.copied()
    with torch.no_grad():
        for weight in reference.model.parameters():
            weight.mul_(0.9)
    batch, ready = prepared(wanted, selection, Models(policy, policy, reference), episodes, step=0, price=0.5)
    assert batch.laid.rollout.rollout_logprob is not None
    assert batch.ref_logprob is not None
    assert ready.kl is not None
    raw = (batch.laid.rollout.rollout_logprob - batch.ref_logprob)[batch.mask]
    torch.testing.assert_close(ready.kl[batch.mask], raw)
    reward = torch.tensor([e.outcome.reward for e in episodes if e.outcome])
    torch.testing.assert_close(ready.reward, reward - 0.5 * ready.kl.sum(dim=1), atol=1e-5, rtol=1e-5)


def test_shuffled_rewards_are_the_same_rewards_elsewhere() -> None:
    """A control: the same numbers on other trajectories, all rows of one with one reward."""
    wanted = recipe(rollout={**WIDE, "shuffled_rewards": True})
    selection, policy, episodes = sampled(wanted)
    batch, _ = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    earned = [e.outcome.reward for e in episodes if e.outcome]
    given = batch.laid.rollout.reward.tolist()
    torch.testing.assert_close(torch.tensor(sorted(given)), torch.tensor(sorted(earned)))
    assert given != torch.tensor(earned).tolist()
    plain = recipe(rollout=WIDE)
    assert (
        prepared(plain, selection, Models(policy, policy, None), episodes, step=0, price=0.0)[
            0
        ].laid.rollout.reward.tolist()
        != given
    )


def test_greedy_reward_is_what_remax_compares_with() -> None:
    """By hand, response by response, whatever the other responses to the prompt got."""
    wanted = recipe(rollout=WIDE, update={"prompts": 4}, estimator={"name": "remax"})
    selection, policy, episodes = sampled(wanted)
    assert "reward_baseline" in selection.reads
    for episode in episodes:
        episode.baseline = 0.25 * episode.group
    batch, _ = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    relative = torch.tensor([e.outcome.reward - 0.25 * e.group for e in episodes if e.outcome])
    assert float(relative.abs().max()) > 0.5
    torch.testing.assert_close(batch.advantage, relative.unsqueeze(1) * batch.mask)


def test_parts_are_weighed_and_go_with_their_reward() -> None:
    """Each in units of its own deviation within its group, by its weight; shuffled as the rewards are."""
    estimator = {"name": "gdpo", "weight": (1.0, 0.5), "epsilon": 0.0}
    how: dict[str, Any] = {"environment": {"name": "training:Marked"}, "estimator": estimator, "update": {"prompts": 4}}
    wanted = recipe(rollout=WIDE, **how)
    selection, policy, episodes = sampled(wanted)
    batch, _ = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    parts = torch.tensor([e.outcome.parts for e in episodes if e.outcome]).view(4, 4, 2)
    spread = parts.std(dim=1, keepdim=True)
    apart = torch.where(spread > 0, (parts - parts.mean(dim=1, keepdim=True)) / spread, 0.0)
    summed = (apart * torch.tensor([1.0, 0.5])).sum(dim=2).flatten()
    expected = (summed - summed.mean()) / summed.std()
    assert (spread > 0).any(dim=0).all()
    torch.testing.assert_close(batch.advantage, expected.unsqueeze(1) * batch.mask)
    moved = prepared(
        recipe(rollout={**WIDE, "shuffled_rewards": True}, **how),
        selection,
        Models(policy, policy, None),
        episodes,
        step=0,
        price=0.0,
    )[0].laid.rollout
    assert moved.reward_parts is not None
    assert moved.reward.tolist() == moved.reward_parts[:, 0].tolist() != parts[..., 0].flatten().tolist()


def test_squares_come_with_the_log_probs_that_they_belong_to() -> None:
    """Both of the policy before the update, for the estimator that reads them; nobody else pays for them."""
    plain = {"name": "grpo", "standardise": False, "epsilon": 0.0}
    for estimator, there in (({"name": "optimal_token_baseline"}, True), (plain, False)):
        wanted = recipe(rollout=WIDE, update={"prompts": 4}, estimator=estimator)
        selection, policy, episodes = sampled(wanted)
        batch, _ = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
        squares = batch.laid.rollout.pi_squared
        assert (squares is not None, batch.old_logprob is not None) == (there, there)
        if squares is not None and batch.old_logprob is not None:
            chance = batch.old_logprob[batch.mask].exp()
            assert (squares[batch.mask] >= chance**2 - 1e-6).all()
            assert (squares[batch.mask] <= 1 + 1e-6).all()
