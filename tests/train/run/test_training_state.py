"""The state of a run that checkpoints save."""

from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.train.model.policy import init_policy
from rl_sentinel.train.run.checkpoint import load_newest, save_checkpoint
from rl_sentinel.train.run.training_state import TrainingState, build_kl_controller
from training import recipe

ADAPTIVE = {"reward": 0.1, "target": 0.5, "horizon": 40.0}


def _step(state: TrainingState) -> None:
    for weight in state.policy.model.parameters():
        weight.grad = torch.ones_like(weight)
    state.optimizer.step()


def test_state_is_restored_from_a_checkpoint(tmp_path: Path) -> None:
    config = recipe(kl=ADAPTIVE)
    first = TrainingState.initial(config, init_policy(config))
    _step(first)
    first.step, first.controller = 7, first.controller.after(0.7, samples=8)
    save_checkpoint(tmp_path, first.for_checkpoint({"lines": 7, "sha256": ""}), step=7, keep=2)
    again = TrainingState.initial(config, init_policy(recipe(seed=3)))
    saved = load_newest(tmp_path).state
    assert saved is not None
    again.restore(config, saved)
    assert (again.step, again.controller) == (7, first.controller)
    assert again.optimizer.param_groups[0]["betas"] == first.optimizer.param_groups[0]["betas"]
    _step(first)
    _step(again)
    pairs = zip(first.policy.model.parameters(), again.policy.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_checkpoint_of_another_model_is_rejected() -> None:
    config, other = recipe(), recipe(policy={"hidden": 8})
    saved = TrainingState.initial(other, init_policy(other)).for_checkpoint({})
    with pytest.raises(SentinelError, match=r"checkpoint in .* cannot be restored \(Error") as error:
        TrainingState.initial(config, init_policy(config)).restore(config, saved)
    assert "\n" not in str(error.value)


def test_kl_controller_is_fixed_or_adaptive() -> None:
    assert build_kl_controller(recipe(kl={"loss": 0.2}).kl) == Fixed(0.2)
    assert build_kl_controller(recipe(kl=ADAPTIVE).kl) == Adaptive(0.1, target=0.5, horizon=40.0)
    assert build_kl_controller(recipe(kl=ADAPTIVE).kl, coefficient=0.3) == Adaptive(0.3, target=0.5, horizon=40.0)
