"""verl's remedies, on a module with the registries' call shape; scripts/remedies.py asks the real package."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rl_sentinel.remedies import REMEDIES, remedy

Registry = dict[str, Callable[..., Any]]

MASK = torch.tensor([[1, 1], [1, 0], [0, 0]])
UID = np.array(["a", "a", "a"], dtype=object)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    found: Registry = {}

    def register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: found.setdefault(name, function)

    names = ["verl", "verl.trainer", "verl.trainer.ppo", "verl.trainer.ppo.core_algos"]
    for name in names:
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    vars(sys.modules[names[-1]]).update(register_adv_est=register, register_policy_loss=register)
    monkeypatch.delitem(sys.modules, "rl_sentinel.remedies.verl", raising=False)
    importlib.import_module("rl_sentinel.remedies.verl")
    yield found
    sys.modules.pop("rl_sentinel.remedies.verl", None)


def _asked(estimator: Callable[..., Any], rejected: float, **more: object) -> torch.Tensor:
    reward = torch.tensor([[0.0, 1.0], [0.25, 0.0], [rejected, 0.0]])
    found, returns = estimator(token_level_rewards=reward, response_mask=MASK, index=UID, **more)
    assert torch.equal(found, returns)
    return torch.as_tensor(found)


ESTIMATORS, LOSSES = REMEDIES["verl"].values()


def test_each_estimator_is_registered_and_deaf_to_rejected_rows(registry: Registry) -> None:
    assert set(registry) == {f"sentinel_{n}" for n in ESTIMATORS | LOSSES}
    for estimator in (registry[f"sentinel_{n}"] for n in ESTIMATORS):
        plain = _asked(estimator, 0.0)
        assert torch.equal(plain, _asked(estimator, 9.0))
        assert plain[0, 0] == plain[0, 1] > 0
        assert plain[1, 1] == plain[2].abs().sum() == 0


def test_by_hand(registry: Registry) -> None:
    """RLOO of 1 and 1/4; GRPO without deviation, as verl's setting says."""
    assert _asked(registry["sentinel_rloo"], 9.0).tolist() == [[0.75, 0.75], [-0.75, 0.0], [0.0, 0.0]]
    centered = _asked(registry["sentinel_grpo"], 9.0, config={"norm_adv_by_std_in_grpo": False})
    assert centered.tolist() == [[0.375, 0.375], [-0.375, 0.0], [0.0, 0.0]]


class _Config(SimpleNamespace):
    def get(self, name: str, default: object) -> object:
        return getattr(self, name, default)


def _config(**more: object) -> _Config:
    whole = {"batch_num_tokens": 6, "global_batch_size": 2, "dp_size": 2, "loss_scale_factor": None}
    loss = {"clip_ratio": 0.2, "clip_ratio_low": None, "clip_ratio_high": 0.5, "tau_pos": 1.0, "tau_neg": 1.5}
    return _Config(global_batch_info=whole, policy_loss=SimpleNamespace(dro_beta=0.5), **loss, **more)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_losses_read_nothing_off_the_mask(registry: Registry, name: str) -> None:
    found = []
    for masked, weight in ((0.0, 1.0), (torch.nan, 1.0), (0.0, 0.5)):
        now = torch.where(MASK.bool(), torch.tensor(-0.5), torch.tensor(masked)).requires_grad_()
        weights = torch.full_like(now, weight)
        asked = registry[f"sentinel_{name}"]
        loss, told = asked(
            old_log_prob=torch.full_like(now, -0.75),
            log_prob=now,
            advantages=torch.tensor([[1.0, -1.0], [0.5, 0.0], [9.0, 9.0]]),
            response_mask=MASK,
            loss_agg_mode="token-mean",
            config=_config(),
            rollout_is_weights=weights,
        )
        found.append((loss.item(), torch.autograd.grad(loss, now)[0].tolist()))
        assert set(told) == {"actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower"}
        assert told["actor/ppo_kl"] == pytest.approx(-0.25)
    assert found[0] == found[1]
    assert found[0][1][2] == [0.0, 0.0]
    assert found[0][0] != found[2][0]


def test_a_loss_by_hand(registry: Registry) -> None:
    """PPO of one token, by a denominator of 6 tokens over 2 ranks; the ratio e^0.25 is under 1.5."""
    now, mask = torch.tensor([[-0.5]]), torch.ones(1, 1)
    told = {"response_mask": mask, "loss_agg_mode": "token-mean", "config": _config()}
    loss, logged = registry["sentinel_vanilla"](torch.tensor([[-0.75]]), now, torch.tensor([[2.0]]), **told)
    assert loss.item() == pytest.approx(-2.0 * torch.tensor(0.25).exp().item() / 3)
    assert logged["actor/pg_clipfrac"] == 0.0


def test_a_penalty_that_is_not_configured(registry: Registry) -> None:
    config = _config()
    config.policy_loss.dro_beta = None
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=r"^penalty is nan, expected a number of 0 or more"):
        registry["sentinel_dro"](one, one, one, torch.ones(1, 1), "token-mean", config)


def test_remedy_is_named_where_there_is_one() -> None:
    """Of the setting that chooses the estimator, whatever stands beside it; of nothing else."""
    before = "set VERL_USE_EXTERNAL_MODULES=rl_sentinel.remedies.verl in the environment, and "
    estimator = f"{before}algorithm.adv_estimator=sentinel_rloo"
    assert remedy("verl", "actor.use_kl_loss=True algorithm.adv_estimator=rloo") == estimator
    assert remedy("verl", "algorithm.adv_estimator=gae") == ""
    assert remedy("verl", "trainer.use_v1=True, algorithm.adv_estimator=grpo") == ""
    loss = f"{before}actor_rollout_ref.actor.policy_loss.loss_mode=sentinel_gspo"
    assert remedy("verl", "actor.policy_loss.loss_mode=gspo algorithm.rollout_correction.rollout_is=token") == loss
    assert remedy("verl", "actor.policy_loss.loss_mode=kl_cov") == ""
    step = "add import rl_sentinel.remedies.skyrl to the training script, "
    step += "and set trainer.algorithm.advantage_estimator=sentinel_grpo"
    assert remedy("skyrl", "generator.step_wise_trajectories=true, trainer.algorithm.advantage_estimator=grpo") == step
    assert remedy("skyrl", "trainer.algorithm.advantage_estimator=grpo trainer.algorithm.policy_loss_type=gspo") == ""
    assert remedy("verl", "") == ""
    assert remedy("slime", "algorithm.adv_estimator=grpo") == ""
