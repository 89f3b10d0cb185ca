"""Formulas of what a KL is put to, by hand."""

from math import e

import pytest
import torch

from rl_sentinel.core.batch import batch_of, with_columns
from rl_sentinel.formulas.kl_terms import KL_LOSSES, KL_USES, STEERS

MASK = torch.tensor([[True, True], [False, False]])
BATCH = batch_of(
    MASK,
    logprob=torch.tensor([[-1.0, -2.0], [torch.nan, 0.0]]),
    ref_logprob=torch.tensor([[-1.5, -1.0], [0.0, 0.0]]),
    old_logprob=torch.tensor([[-1.0, -2.0], [0.0, 0.0]]),
    reward=torch.tensor([3.0, 7.0]),
)


def test_uses() -> None:
    """The outcome pays at the last token; the mean -0.25 is far below the target, on one response."""
    assert KL_USES["k1 in the reward"](BATCH, {"coefficient": 2.0}).tolist() == [[-1.0, 5.0], [0.0, 0.0]]
    assert KL_USES["outcome less k1"](BATCH, {"coefficient": 2.0}).tolist() == [[2.0, 5.0], [0.0, 0.0]]
    steered = STEERS["k1 steers"](BATCH, {"coefficient": 1.0, "target": 0.5, "horizon": 4.0})
    assert steered.item() == pytest.approx(0.95)
    weighted = KL_USES["weighted k3"](with_columns(BATCH, old_logprob=BATCH.logprob - 1), {})
    assert weighted[0].tolist() == pytest.approx([e * (e**-0.5 - 0.5), e * (e - 2)])


VALUES = {
    "k1": [0.5, -1.0],
    "k2": [0.125, 0.5],
    "k3": [e**-0.5 - 0.5, e - 2],
    "absolute": [0.5, 1.0],
    "absolute_plus": [0.5, 1.0],
    "k1_plus": [0.5, -1.0],
    "k3_plus": [e**-0.5 - 0.5, e - 2],
    "weighted k3": [e**-0.5 - 0.5, e - 2],
}


@pytest.mark.parametrize("name", VALUES)
def test_losses(name: str) -> None:
    leaf = BATCH.logprob.double().requires_grad_()
    loss, *cut = KL_LOSSES[f"{name} as a loss"](with_columns(BATCH, logprob=leaf), {"coefficient": 3.0}).values()
    assert len(cut) == (name == "k3")
    assert loss[0].tolist() == pytest.approx([3 * x for x in VALUES[name]])
    (slope,) = torch.autograd.grad(loss[0].sum(), leaf)
    if name.endswith("plus"):
        assert slope[0].tolist() == pytest.approx([1.5, -3.0])
