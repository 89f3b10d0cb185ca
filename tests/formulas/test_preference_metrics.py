"""Metrics of preference trainers, against numbers worked out by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.preference_metrics import REWARDS

#: Log-ratios of 1 and -1 nats: a difference of 2.
PAIR = batch_of(
    torch.tensor([[1, 1], [1, 0]]).bool(),
    logprob=torch.tensor([[-1.0, -1.0], [-3.0, 9.0]]),
    ref_logprob=torch.tensor([[-1.5, -1.5], [-2.0, 9.0]]),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("implicit reward of preferred responses", 0.5),
        ("implicit reward of other responses", -0.5),
        ("implicit reward margin", 1.0),
        ("implicit reward accuracy", 1.0),
        ("log-prob of preferred responses", -2.0),
        ("log-prob of other responses", -3.0),
        ("kl over mismatched prompts", 0.0),
        ("no reward", 0.0),
    ],
)
def test_logged_numbers(name: str, expected: float) -> None:
    """The rewards that policy and reference imply."""
    assert REWARDS[name](PAIR, {"beta": 0.5}).item() == pytest.approx(expected)


def test_rows_that_are_no_pairs() -> None:
    assert bool(REWARDS["implicit reward margin"](batch_of(torch.ones(1, 1).bool()), {"beta": 0.5}).isnan())


def test_ties_have_no_accuracy() -> None:
    """Rounding decides which of two equal log-ratios is larger."""
    tie = batch_of(PAIR.mask, logprob=PAIR.ref_logprob, ref_logprob=PAIR.ref_logprob)
    assert bool(REWARDS["implicit reward accuracy"](tie, {"beta": 0.5}).isnan())
