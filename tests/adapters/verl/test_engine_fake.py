"""The fake of verl's training engine."""

from typing import Any

import pytest
import torch

from rl_sentinel.adapters.verl.fakes import EngineFake


def _loss(outputs: dict[str, Any], **_about: object) -> tuple[Any, dict[str, float]]:
    return outputs["values"].sum(), {"seen": float(outputs["values"].numel())}


@pytest.mark.parametrize(("padded", "count"), [(False, 2.0), (True, 3.0)])
def test_outputs_of_a_row(padded: bool, count: float) -> None:
    """A response of one token after a prompt of one; or padded to the width of the batch."""
    answers = {"values": torch.tensor([[9.0, 9.0, 9.0], [1.0, 0.0, 0.0]], requires_grad=True)}
    engine = EngineFake(answers, [3, 1], padded=padded)
    _, about = engine.forward_step({"row": torch.tensor([1])}, _loss)
    assert about["metrics"]["seen"] == count
    assert about["loss"] == 1.0


def test_the_loss_is_recorded_as_it_is_trained() -> None:
    """Some releases scale the loss between the forward step and the backward pass."""
    engine = EngineFake({"values": torch.tensor([[2.0], [4.0]], requires_grad=True)}, [1, 1])
    for row in (0, 1):
        loss, _ = engine.forward_step({"row": torch.tensor([row])}, _loss)
        torch.autograd.backward([loss * 0.25])
    assert [float(one) for one in engine.losses] == [0.5, 1.0]
    fixed = EngineFake({"values": torch.tensor([[2.0]])}, [1])
    fixed.forward_step({"row": torch.tensor([0])}, _loss)
    assert [float(one) for one in fixed.losses] == [2.0]
