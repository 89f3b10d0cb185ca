"""Formulas of rollout correction, by hand: log-ratios 0 and -1, and a row without a trained token."""

from math import exp

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.corrections import CORRECTIONS, SHARES

ZERO = torch.zeros(2, 3)
BATCH = batch_of(
    torch.tensor([[True, False, True], [False, False, False]]),
    logprob=torch.tensor([[0.0, 9.0, -1.0], [9.0, 9.0, 9.0]]),
    rollout_logprob=ZERO,
    old_logprob=ZERO,
    advantage=torch.tensor([[-1.0, 9.0, 0.5], [0.0, 0.0, 0.0]]),
    reward=torch.tensor([1.0, 1.0]),
)
W = exp(-1)

EXPECTED: list[tuple[str, Settings, list[float]]] = [
    ("log ratios", {}, [0, 0, -1, 0, 0, 0]),
    ("token weights", {}, [1, 0, W, 0, 0, 0]),
    ("sequence weights", {}, [W, 0]),
    ("geometric weights", {}, [exp(-0.5), 0]),
    ("truncated", {"level": "token", "high": 0.75}, [0.75, 0, W, 0, 0, 0]),
    ("clipped weights", {"level": "sequence", "low": 0.5, "high": 0.75}, [0.5, 0]),
    ("masked", {"level": "token", "low": 0.5, "high": 1.0}, [1, 0, 0, 0, 0, 0]),
    ("self normalized", {"level": "token"}, [2 / (1 + W), 0, 2 * W / (1 + W), 0, 0, 0]),
    ("tokens kept", {"estimator": "k1", "low": -1, "high": 0.5}, [1, 0, 0, 0, 0, 0]),
    ("rows kept", {"estimator": "k1", "over": "mean", "low": -1, "high": 0.5}, [1, 0]),
    ("rows kept", {"estimator": "k1", "over": "sum", "low": -1, "high": 0.5}, [0, 0]),
    ("rows kept", {"estimator": "k2", "over": "max", "low": -1, "high": 0.25}, [0, 0]),
    ("rows kept", {"estimator": "k3", "over": "max", "low": -1, "high": W + 1e-4}, [1, 0]),
    ("vetoed", {"floor": 0.36}, [1, 0]),
    ("vetoed", {"floor": 0.37}, [0, 0]),
    ("off policy sequences kept", {"threshold": 0.4}, [0, 0]),
    ("off policy sequences kept", {"threshold": 0.6}, [1, 0]),
    ("off policy sequences kept", {"threshold": 0.4, "per_response": True}, [1, 0]),
    ("second moment kept", {"threshold": 0.4}, [1, 0, 0, 0, 0, 0]),
    ("second moment kept", {"threshold": 0.6}, [1, 0, 1, 0, 0, 0]),
]


@pytest.mark.parametrize(("name", "settings", "expected"), EXPECTED)
def test_by_hand(name: str, settings: Settings, expected: list[float]) -> None:
    found = CORRECTIONS[name](BATCH, settings)
    assert found.flatten().tolist() == pytest.approx(expected)


def test_outcomes_of_what_is_kept() -> None:
    batch = batch_of(
        torch.ones(3, 2).bool(),
        logprob=torch.tensor([[0.0, 0.0], [-3.0, -3.0], [-3.0, 3.0]]),
        rollout_logprob=torch.zeros(3, 2),
        reward=torch.tensor([1.0, 50.0, 3.0]),
    )
    settings: Settings = {"estimator": "k1", "over": "mean", "low": -1.0, "high": 1.0}
    found = CORRECTIONS["centered outcomes of kept tokens"]
    assert found(batch, settings).tolist() == [-1.0, 0.0, 1.0]
    assert found(batch, {**settings, "tokens": True}).tolist() == [0.0, 0.0, 0.0]


def test_rejected() -> None:
    assert SHARES["rejected fraction"](BATCH, {"threshold": 0.4}).item() == 1.0
