"""Log-probs and entropy of logits, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.logits import MEANS_OF_LOGITS, OF_LOGITS

MASK = torch.tensor([[True, False]])


def test_shares_by_hand() -> None:
    """Logits 2 ln 3, 0, 0 at temperature 2 are shares 3/5, 1/5, 1/5; nothing where nothing trains; with a slope."""
    logits = torch.tensor([[[2 * math.log(3), 0.0, 0.0], [9.0, 9.0, 9.0]]], requires_grad=True)
    batch = batch_of(MASK, logits=logits, token=torch.tensor([[1, 0]]))
    found = OF_LOGITS["log-prob of the token"](batch, {"temperature": 2.0})
    assert found.flatten().tolist() == pytest.approx([math.log(0.2), 0.0])
    (slope,) = torch.autograd.grad(found.sum(), logits)
    assert slope.flatten().tolist() == pytest.approx([-0.3, 0.4, -0.1, 0, 0, 0], abs=1e-6)
    spread = OF_LOGITS["entropy of the logits"](batch, {"temperature": 2.0})
    assert spread.flatten().tolist() == pytest.approx([-0.6 * math.log(0.6) - 0.4 * math.log(0.2), 0.0])
    mean = MEANS_OF_LOGITS["mean entropy of trained tokens at the temperature"](batch, {"temperature": 2.0})
    assert mean.item() == pytest.approx(spread.sum().item())
