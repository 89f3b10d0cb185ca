"""Optimizer steps that are taken back."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.update.optimizer_step import RuinedError, stepped


def _optimizer(**more: float) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    return torch.optim.AdamW([weight], **{"lr": 0.1, **more}), weight  # type: ignore[arg-type]  # numbers


def test_sound_step_is_the_optimizers_own() -> None:
    """To the last bit."""
    (one, first), (two, second) = _optimizer(), _optimizer()
    stepped(one, key="update.rate")
    two.step()
    assert torch.equal(first, second)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("what", ["rate", "moments", "nan"])
def test_ruined_step_leaves_weights_and_moments_as_they_were(before: int, what: str) -> None:
    """In the first step, which has no moments yet, and behind others."""
    optimizer, weight = _optimizer()
    twin, other = _optimizer()
    for _ in range(before):
        optimizer.step()
        twin.step()
    assert weight.grad is not None
    if what == "rate":
        optimizer.param_groups[0]["lr"] = 1e30
    else:
        weight.grad[1] = 1e25 if what == "moments" else torch.nan
    words = {"rate": "weights after the step is inf", "moments": "optimizer's moments after the step is inf"}
    with pytest.raises(RuinedError, match=words.get(what, "weights after the step is nan")):
        stepped(optimizer, key="update.rate")
    assert torch.equal(weight, other)
    optimizer.param_groups[0]["lr"], weight.grad[1] = 0.1, 1.0
    optimizer.step()
    twin.step()
    assert torch.equal(weight, other)


def test_what_is_too_large_to_be_copied_stops_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says where to go on from."""
    monkeypatch.setattr("rl_sentinel.train.update.optimizer_step.COPIED", 11)
    optimizer, _ = _optimizer(lr=1e30)
    with pytest.raises(
        SentinelError, match=r"update.rate was 1e\+30, take a lower one, and go on from the last"
    ) as told:
        stepped(optimizer, key="update.rate")
    assert not isinstance(told.value, RuinedError)
