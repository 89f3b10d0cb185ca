"""Optimizer steps that are rolled back."""

import pytest
import torch

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.update.optimizer_step import NonFiniteStepError, take_optimizer_step


def _optimizer(**more: float) -> tuple[torch.optim.Optimizer, torch.Tensor]:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.ones(3)
    return torch.optim.AdamW([weight], **{"lr": 0.1, **more}), weight  # type: ignore[arg-type]  # numbers


def test_finite_step_is_the_optimizers_own() -> None:
    (one, first), (two, second) = _optimizer(), _optimizer()
    take_optimizer_step(one, key="update.rate")
    two.step()
    assert torch.equal(first, second)


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("what", ["rate", "moments", "nan"])
def test_non_finite_step_is_rolled_back(before: int, what: str) -> None:
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
    words = {
        "rate": "weights after the optimizer step is inf",
        "moments": "optimizer's moments after the optimizer step is inf",
    }
    with pytest.raises(NonFiniteStepError, match=words.get(what, "weights after the optimizer step is nan")):
        take_optimizer_step(optimizer, key="update.rate")
    assert torch.equal(weight, other)
    optimizer.param_groups[0]["lr"], weight.grad[1] = 0.1, 1.0
    optimizer.step()
    twin.step()
    assert torch.equal(weight, other)


def test_non_finite_step_without_a_backup_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_sentinel.train.update.optimizer_step.MAX_BACKUP_BYTES", 11)
    optimizer, _ = _optimizer(lr=1e30)
    with pytest.raises(SentinelError, match=r"lower update.rate, it was 1e\+30; start a new run with out=DIR") as error:
        take_optimizer_step(optimizer, key="update.rate")
    assert not isinstance(error.value, NonFiniteStepError)
