"""What a run is at a step."""

from pathlib import Path

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.signal.controller import Adaptive, Fixed
from rl_sentinel.train.model.policy import from_scratch
from rl_sentinel.train.run.checkpoint import newest, saved
from rl_sentinel.train.run.training_state import State, priced
from training import recipe

STEERED = {"reward": 0.1, "target": 0.5, "horizon": 40.0}


def _moved(state: State) -> None:
    for weight in state.policy.model.parameters():
        weight.grad = torch.ones_like(weight)
    state.optimizer.step()


def test_state_goes_through_a_checkpoint(tmp_path: Path) -> None:
    """And the next step of the optimizer is the same, to the last bit."""
    wanted = recipe(kl=STEERED)
    first = State.first(wanted, from_scratch(wanted))
    _moved(first)
    first.step, first.controller = 7, first.controller.after(0.7, samples=8)
    saved(tmp_path, first.told({"lines": 7, "sha256": ""}), step=7, keep=2)
    again = State.first(wanted, from_scratch(recipe(seed=3)))
    found = newest(tmp_path).state
    assert found is not None
    again.restore(wanted, found)
    assert (again.step, again.controller) == (7, first.controller)
    _moved(first)
    _moved(again)
    pairs = zip(first.policy.model.parameters(), again.policy.model.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


def test_other_model_is_refused() -> None:
    """In one line."""
    wanted, other = recipe(), recipe(policy={"hidden": 8})
    found = State.first(other, from_scratch(other)).told({})
    with pytest.raises(SentinelError, match=r"checkpoint does not fit the recipe \(Error") as told:
        State.first(wanted, from_scratch(wanted)).restore(wanted, found)
    assert "\n" not in str(told.value)


def test_price_is_fixed_or_steered() -> None:
    """By the recipe."""
    assert priced(recipe(kl={"loss": 0.2}).kl) == Fixed(0.2)
    assert priced(recipe(kl=STEERED).kl) == Adaptive(0.1, target=0.5, horizon=40.0)
    assert priced(recipe(kl=STEERED).kl, coefficient=0.3) == Adaptive(0.3, target=0.5, horizon=40.0)
