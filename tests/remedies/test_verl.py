"""verl's remedies, on a module with the registry's call shape; scripts/remedies.py asks the real package."""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
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
    """What the remedies register."""
    found: Registry = {}

    def register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return lambda function: found.setdefault(name, function)

    names = ["verl", "verl.trainer", "verl.trainer.ppo", "verl.trainer.ppo.core_algos"]
    for name in names:
        module = ModuleType(name)
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
    vars(sys.modules[names[-1]])["register_adv_est"] = register
    monkeypatch.delitem(sys.modules, "rl_sentinel.remedies.verl", raising=False)
    importlib.import_module("rl_sentinel.remedies.verl")
    yield found
    sys.modules.pop("rl_sentinel.remedies.verl", None)


def _asked(estimator: Callable[..., Any], rejected: float, **more: object) -> torch.Tensor:
    reward = torch.tensor([[0.0, 1.0], [0.25, 0.0], [rejected, 0.0]])
    found, returns = estimator(token_level_rewards=reward, response_mask=MASK, index=UID, **more)
    assert torch.equal(found, returns)
    return torch.as_tensor(found)


def test_each_is_registered_and_deaf_to_rejected_rows(registry: Registry) -> None:
    """Every remedy that a report names is there; the two live rows alone decide."""
    assert set(registry) == {f"sentinel_{n}" for n in REMEDIES["verl"][1]}
    for estimator in registry.values():
        plain = _asked(estimator, 0.0)
        assert torch.equal(plain, _asked(estimator, 9.0))
        assert plain[0, 0] == plain[0, 1] > 0
        assert plain[1, 1] == plain[2].abs().sum() == 0


def test_by_hand(registry: Registry) -> None:
    """RLOO of 1 and 1/4; GRPO without deviation, as verl's setting says."""
    assert _asked(registry["sentinel_rloo"], 9.0).tolist() == [[0.75, 0.75], [-0.75, 0.0], [0.0, 0.0]]
    centred = _asked(registry["sentinel_grpo"], 9.0, config={"norm_adv_by_std_in_grpo": False})
    assert centred.tolist() == [[0.375, 0.375], [-0.375, 0.0], [0.0, 0.0]]


def test_remedy_is_told_where_there_is_one() -> None:
    """Of the setting that chooses the estimator, whatever stands beside it; of nothing else."""
    told = "import rl_sentinel.remedies.verl, and algorithm.adv_estimator=sentinel_rloo"
    assert remedy("verl", "actor.use_kl_loss=True algorithm.adv_estimator=rloo") == told
    assert remedy("verl", "algorithm.adv_estimator=gae") == ""
    assert remedy("verl", "") == ""
    assert remedy("slime", "algorithm.adv_estimator=grpo") == ""
