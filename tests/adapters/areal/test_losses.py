"""What AReaL's losses are given, on doubles of them that answer with what they were told."""

from collections.abc import Callable

import pytest
import torch

from adapters.areal_specimen import CONFIG
from rl_sentinel.adapters.areal import FRAMEWORK
from rl_sentinel.adapters.areal.losses import CRITIC, GATES, PLAIN, PPO, REJECTING, SAPO, boundaries
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.boundary import Boundary, Unbound

Loads = Callable[..., Target]

#: Each column at its own power of ten, so that a sum tells which columns went where.
PPO_LOSS = """
    def ppo_actor_loss_fn(logprobs, proximal_logprobs, old_logprobs, advantages, eps_clip, loss_mask,
                          eps_clip_higher=None, c_clip=None, rejection_sampling=None,
                          importance_sampling_level="token"):
        told = logprobs + 10 * proximal_logprobs + 100 * old_logprobs + 1000 * advantages
        loss_mask.zero_()
        return told.sum() + (0 if rejection_sampling is None else rejection_sampling.upper * 10**6), {}
"""

SAPO_LOSS = """
    def sapo_loss_fn(logprobs, old_logprobs, advantages, tau_pos, tau_neg, loss_mask,
                     importance_sampling_level="token"):
        return (logprobs + 10 * old_logprobs + 100 * advantages).sum() * tau_neg, {}
"""

CRITIC_LOSS = """
    def ppo_critic_loss_fn(value, old_value, target_value, value_eps_clip, loss_mask=None, loss_fn_type="mse"):
        return (value + 10 * old_value + 100 * target_value).sum() * value_eps_clip, {}
"""


def _files(*losses: str, rejects: bool = True) -> dict[str, str]:
    files = {"areal/__init__.py": "", "areal/utils/functional.py": "\n".join(losses), "areal/api/cli_args.py": ""}
    return files | ({"areal/api/cli_args.py": CONFIG} if rejects else {})


def _batch() -> Batch:
    columns = {"logprob": 1.0, "old_logprob": 2.0, "rollout_logprob": 3.0, "advantage": 4.0}
    columns |= {"value": 5.0, "old_value": 6.0, "returns": 7.0}
    return batch_of(torch.ones(1, 1).bool(), **{n: torch.full((1, 1), x) for n, x in columns.items()})


def _found(target: Target) -> dict[tuple[str, str], Boundary]:
    every = [b for b in boundaries(target) if isinstance(b, Boundary)]
    return {(b.path, setting): b for b in every for setting in b.settings}


def _told(boundary: Boundary, setting: str, batch: Batch) -> float:
    return boundary.call(batch, boundary.settings[setting])["loss"].item()


def test_columns_go_where_they_belong(loads: Loads) -> None:
    """Without a sampler's column the old policy is both; decoupled, the sampler is the old one and is read."""
    found = _found(loads(FRAMEWORK, _files(PPO_LOSS, SAPO_LOSS, CRITIC_LOSS)))
    for setting in PLAIN:
        assert _told(found[PPO, setting], setting, _batch()) == 1 + 20 + 200 + 4000
        assert found[PPO, setting].reads == {"logprob", "old_logprob", "advantage", "mask"}
    for setting in REJECTING:
        assert _told(found[PPO, setting], setting, _batch()) == 1 + 20 + 300 + 4000 + 5 * 10**6
        assert "rollout_logprob" in found[PPO, setting].reads
    assert _told(found[SAPO, "default"], "default", _batch()) == pytest.approx((1 + 20 + 400) * 1.05)
    assert _told(found[CRITIC, "default"], "default", _batch()) == (5 + 60 + 700) * 0.5
    assert {s for path, s in found if path == SAPO} == set(GATES)


def test_the_mask_given_is_the_targets_own(loads: Loads) -> None:
    """A loss that writes into its mask does not reach the batch, which is asked again."""
    boundary = _found(loads(FRAMEWORK, _files(PPO_LOSS, CRITIC_LOSS)))[PPO, "default"]
    batch = _batch()
    _told(boundary, "default", batch)
    assert batch.mask.tolist() == [[True]]


@pytest.mark.parametrize(("lacking", "stage"), [(PPO, "policy-loss"), (CRITIC, "value-loss")])
def test_what_every_release_has_is_missed(loads: Loads, lacking: str, stage: str) -> None:
    """By its path, and the others are bound."""
    kept = {PPO: PPO_LOSS, SAPO: SAPO_LOSS, CRITIC: CRITIC_LOSS}
    del kept[lacking]
    every = list(boundaries(loads(FRAMEWORK, _files(*kept.values()))))
    assert [(b.path, b.stage) for b in every if isinstance(b, Unbound)] == [(lacking, stage)]
    assert {b.path for b in every} == {PPO, SAPO, CRITIC}


def test_what_came_later_is_not_missed(loads: Loads) -> None:
    """Neither SAPO nor rejection of an earlier release; no boundary pretends to them."""
    every = list(boundaries(loads(FRAMEWORK, _files(PPO_LOSS, CRITIC_LOSS, rejects=False))))
    assert not [b for b in every if isinstance(b, Unbound)]
    assert {(b.path, s) for b in every if isinstance(b, Boundary) for s in b.settings} == {
        *((PPO, s) for s in PLAIN),
        (CRITIC, "default"),
        (CRITIC, "huber"),
    }
