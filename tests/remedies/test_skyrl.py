"""SkyRL's remedies, on modules with its registries' call shape; scripts/remedies.py asks the real package."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rl_sentinel.remedies import REMEDIES

UTILS = "skyrl.backends.skyrl_train.utils"
MASK = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
ESTIMATORS, LOSSES = REMEDIES["skyrl"].values()


class _Registry:
    """A registry that refuses a name which it has."""

    def __init__(self, *names: str) -> None:
        self.held: dict[str, Callable[..., Any]] = dict.fromkeys(names, max)

    def list_available(self) -> list[str]:
        return list(self.held)

    def register(self, name: str, function: Callable[..., Any]) -> None:
        if name in self.held:
            raise ValueError(name)
        self.held[name] = function


def _corrected(
    old: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor, _config: object
) -> tuple[torch.Tensor | None, dict[str, float], torch.Tensor]:
    """Half of every weight, and the first token masked, as a correction might say."""
    kept = mask.clone()
    kept[0, 0] = 0.0
    return torch.full_like(old, 0.5) + 0 * rollout, {"is_ratio_mean": 0.5}, kept


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[..., Any]]]:
    """What the remedies register, where another process has told of one already."""
    parts = UTILS.split(".")
    for name in [".".join(parts[:n]) for n in range(1, 5)] + [
        f"{UTILS}.ppo_utils",
        f"{UTILS}.off_policy_correction_utils",
    ]:
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    estimators, losses = _Registry("grpo"), _Registry("sentinel_sapo")
    told = {"AdvantageEstimatorRegistry": estimators, "PolicyLossRegistry": losses}
    vars(sys.modules[f"{UTILS}.ppo_utils"]).update(told, LOSSES_WITH_OLD_LOGPROBS=frozenset({"regular"}))
    vars(sys.modules[f"{UTILS}.off_policy_correction_utils"])["compute_off_policy_correction"] = _corrected
    monkeypatch.delitem(sys.modules, "rl_sentinel.remedies.skyrl", raising=False)
    importlib.import_module("rl_sentinel.remedies.skyrl")
    yield estimators.held | losses.held
    sys.modules.pop("rl_sentinel.remedies.skyrl", None)


def _config() -> SimpleNamespace:
    return SimpleNamespace(
        eps_clip_low=0.2,
        eps_clip_high=0.2,
        clip_ratio_c=3.0,
        cispo=SimpleNamespace(cispo_eps_clip_low=0.0, cispo_eps_clip_high=5.0),
        off_policy_correction=None,
    )


def test_fully_asynchronous_training_refuses_ours_as_its_own(registries: dict[str, Callable[..., Any]]) -> None:
    held = sys.modules[f"{UTILS}.ppo_utils"].LOSSES_WITH_OLD_LOGPROBS
    assert held == {"regular"} | {name for name in registries if name.removeprefix("sentinel_") in LOSSES}
    assert sorted(name.value for name in held if name != "regular") == sorted(f"sentinel_{n}" for n in LOSSES)


def test_each_estimator_is_deaf_to_rejected_rows(registries: dict[str, Callable[..., Any]]) -> None:
    assert set(registries) == {"grpo"} | {f"sentinel_{n}" for n in ESTIMATORS | LOSSES}
    for name in ESTIMATORS:
        found = []
        for rejected in (0.0, 9.0):
            reward = torch.tensor([[0.0, 1.0], [0.25, 0.0], [rejected, 0.0]])
            told = {"response_mask": MASK, "index": np.array(["a", "a", "a"]), "config": None, "values": None}
            advantage, returns = registries[f"sentinel_{name}"](token_level_rewards=reward, **told)
            assert torch.equal(advantage, returns)
            found.append(advantage.tolist())
        assert found[0] == found[1]
        assert found[0][0][0] == found[0][0][1] > 0 > found[0][1][0]
        assert found[0][1][1:] + found[0][2] == [0.0, 0.0, 0.0]


def test_grpo_without_deviation(registries: dict[str, Callable[..., Any]]) -> None:
    """As SkyRL's setting says: 1 and 1/4 about their mean."""
    reward = torch.tensor([[0.0, 1.0], [0.25, 0.0], [9.0, 0.0]])
    told = {"response_mask": MASK, "index": np.array([3, 3, 3]), "grpo_norm_by_std": False}
    assert registries["sentinel_grpo"](token_level_rewards=reward, **told)[0][:, 0].tolist() == [0.375, -0.375, 0.0]


@pytest.mark.parametrize("name", sorted(LOSSES - {"sapo"}))
def test_losses_read_nothing_off_the_mask(registries: dict[str, Callable[..., Any]], name: str) -> None:
    found = []
    for masked in (0.0, torch.nan):
        now = torch.where(MASK.bool(), torch.tensor(-0.5), torch.tensor(masked)).requires_grad_()
        advantage = torch.tensor([[1.0, -1.0], [0.5, 0.0], [9.0, 9.0]])
        loss, told = registries[f"sentinel_{name}"](now, torch.full_like(now, -0.75), advantage, _config(), MASK)
        found.append((loss.item(), torch.autograd.grad(loss, now)[0].tolist()))
        assert told["clip_ratio"] == pytest.approx(2 / 3)
    assert found[0] == found[1]
    assert found[0][1][1][1:] + found[0][1][2] == [0.0, 0.0, 0.0]


def test_the_frameworks_own_correction_comes_first(registries: dict[str, Callable[..., Any]]) -> None:
    now = torch.full((3, 2), -0.75)
    told = {"loss_mask": MASK, "rollout_logprobs": now - 1}
    advantage = torch.tensor([[1.0, -1.0], [0.5, 0.0], [9.0, 9.0]])
    loss, logged = registries["sentinel_importance_sampling"](now, now, advantage, _config(), **told)
    assert loss.item() == 0.5 * (1.0 - 0.5)
    assert logged == {"clip_ratio": 0.0, "is_ratio_mean": 0.5}
