"""A step's numbers, against plain sums over trajectories."""

import torch

from rl_sentinel.train.model.policy import Models
from rl_sentinel.train.run import rng
from rl_sentinel.train.run.step_metrics import measured
from rl_sentinel.train.run.training_state import optimized
from rl_sentinel.train.update.policy_update import learned
from rl_sentinel.train.update.training_batch import prepared
from training import recipe, sampled


def test_numbers_are_those_of_the_trajectories() -> None:
    """Whatever was cut: two mini-batches, three rows at a time."""
    wanted = recipe(rollout={"prompts": 4, "responses": 4, "tokens": 6}, update={"epochs": 3, "rows": 3, "rate": 0.05})
    selection, policy, episodes = sampled(wanted)
    batch, ready = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    seen = learned(
        policy,
        optimized(policy, wanted.update),
        batch,
        selection=selection,
        recipe=wanted,
        coefficient=0.0,
        order=rng.generator(0),
    )
    found = measured(wanted, episodes, batch, ready, seen, step=0)
    outcomes = [e.outcome for e in episodes if e.outcome]
    said = [x for e in episodes for x in e.steps[0].logprob]
    assert abs(found["reward"] - sum(o.reward for o in outcomes) / 16) < 1e-9
    assert found["accuracy"] == sum(o.correct for o in outcomes) / 16
    assert found["response_length"] == len(said) / 16
    assert abs(found["entropy"] + sum(said) / len(said)) < 1e-5
    assert found["ended"] == sum(e.ended for e in episodes) / 16
    groups = [{o.reward for o in outcomes[n : n + 4]} for n in range(0, 16, 4)]
    assert found["dead_groups"] == sum(len(g) == 1 for g in groups) / 4
    assert 0 < found["clip_fraction"] < 1
    assert found["kl"] > 1e-4


def test_clipped_share_is_of_all_trained_tokens() -> None:
    """A loss without clips has none."""
    wanted = recipe(loss={"name": "reinforce", "aggregation": "token-mean"}, update={"epochs": 2, "rate": 0.1})
    selection, policy, episodes = sampled(wanted)
    batch, ready = prepared(wanted, selection, Models(policy, policy, None), episodes, step=0, price=0.0)
    seen = learned(
        policy,
        optimized(policy, wanted.update),
        batch,
        selection=selection,
        recipe=wanted,
        coefficient=0.0,
        order=torch.Generator(),
    )
    assert measured(wanted, episodes, batch, ready, seen, step=0)["clip_fraction"] == 0.0
