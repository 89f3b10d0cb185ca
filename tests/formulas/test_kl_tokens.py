"""KL estimators, shaped rewards and controllers, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.kl_tokens import CONTROLLERS, KL, SHAPED, SHAPED_OUTCOMES

#: Log-ratios 0.5 and -1; -3 where nothing is trained, and a dead row.
BATCH = batch_of(
    torch.tensor([[True, True, False], [False, False, False]]),
    reward=torch.tensor([2.0, 5.0]),
    token_reward=torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    logprob=torch.tensor([[-1.0, -2.0, -3.0], [0.0, 0.0, 0.0]]),
    ref_logprob=torch.tensor([[-1.5, -1.0, 0.0], [0.0, 0.0, 0.0]]),
)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [0.5, -1.0]),
        ("abs", [0.5, 1.0]),
        ("k2", [0.125, 0.5]),
        ("k3", [math.exp(-0.5) - 0.5, math.e - 2]),
    ],
)
def test_estimators(kind: str, expected: list[float]) -> None:
    """The policy stands first: a token that it likes more than its reference has a positive k1."""
    assert next(iter(KL[kind](BATCH).values()))[0, :2].tolist() == pytest.approx(expected)


def test_a_cut() -> None:
    """A k3 above 10 may be held there, and is a reading of its own."""
    far = batch_of(torch.tensor([[True]]), logprob=torch.tensor([[-4.0]]), ref_logprob=torch.tensor([[0.0]]))
    found = {n: x.item() for n, x in KL["k3"](far).items()}
    assert found == pytest.approx({"k3": math.exp(4) - 5, "k3 cut at 10": 10.0})


def test_shaped() -> None:
    found = {n: x.tolist() for n, x in SHAPED["less k1"](BATCH, {"kl_coef": 0.5}).items()}
    assert found == {
        "less k1, the outcome at the last response token": [[0.75, 0.5, 2.0], [0.0, 0.0, 5.0]],
        "less k1, the outcome at the last trained token": [[0.75, 2.5, 0.0], [0.0, 0.0, 0.0]],
    }


def test_shaped_outcomes() -> None:
    """The KL of a row is summed or averaged over its two trained tokens; a dead row keeps its outcome."""
    found = {n: x[:, 0].tolist() for n, x in SHAPED_OUTCOMES["less k1"](BATCH, {"kl_coef": 0.5}).items()}
    assert found == {"less k1, summed over the row": [3.25, 5.0], "less k1, mean over the row": [3.125, 5.0]}


def test_controllers() -> None:
    settings = {"kl_coef": 2.0, "target_kl": 0.5, "horizon": 10}
    assert {x.item() for x in CONTROLLERS["fixed"]("k1", BATCH, settings).values()} == {2.0}
    below = CONTROLLERS["adaptive"]("k1", BATCH, settings)  # -0.25 and its like: far below
    assert {round(x.item(), 9) for x in below.values()} == {2 * (1 - 0.2 * 2 / 10)}
    above = CONTROLLERS["adaptive"]("abs", BATCH, {**settings, "target_kl": 0.7})
    assert above["by the mean over tokens"].item() == pytest.approx(2 * (1 + 0.05 / 0.7 * 2 / 10))
    assert above["by the mean of row means, all rows"].item() == pytest.approx(2 * (1 - 0.2 * 2 / 10))
    assert above["by the mean of row sums, live rows"].item() == pytest.approx(2 * (1 + 0.2 * 2 / 10))
