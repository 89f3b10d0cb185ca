"""Formulas of algorithms, by hand."""

import math

import pytest
import torch

from rl_sentinel.cases.filling import filled
from rl_sentinel.cases.formulas import ADVANTAGES, advantages_of, known_algorithm, loss_of, values_of
from rl_sentinel.core.batch import with_columns
from rl_sentinel.core.boundary import Output, Stage
from specimens import specimen

BATCH = filled([[1, 1], [1, 1], [1, 0], [1, 1]], reward=[4, 1, 1, 6], group=[0, 0, 0, 1], length=[2, 2, 1, 2])
PAIRS = filled([[1, 1], [1, 0], [1, 1], [1, 1]], reward=[4, 2, 1, 1], group=[0, 0, 1, 1], length=[2, 1, 2, 2])


@pytest.mark.parametrize(
    ("algorithm", "reading", "expected"),
    [
        ("grpo", "centred", [1, -1, 0, 0]),
        ("grpo", "by deviation (n) and 0.5", [1 / 1.5, -1 / 1.5, 0, 0]),
        ("rloo", "against the others' mean", [2, -2, 0, 0]),
        ("opo", "mean weighted by tokens of the response", [2 / 3, -4 / 3, 0, 0]),
        ("pass@k", "margin of the best", [2, 0, 0, 0]),
        ("gpg", "times all rows by rows whose group has a signal", [2, -2, 0, 0]),
        ("outcome", "the outcome itself", [4, 2, 1, 1]),
        (
            "reinforce++ baseline",
            "by deviation (n) over rows, 0.5 beside",
            [1 / (0.5**0.5 + 0.5), -1 / (0.5**0.5 + 0.5), 0, 0],
        ),
    ],
)
def test_advantages(algorithm: str, reading: str, expected: list[float]) -> None:
    """A pair of 4 and 2, and a pair of equal rewards."""
    assert ADVANTAGES[algorithm](PAIRS, {"epsilon": 0.5})[reading] == pytest.approx(expected)


def test_claims_choose_readings() -> None:
    """Whether it is standardised, and by which deviation, is claimed."""
    claims = {"algorithm": "grpo", "standardised": "yes", "deviation": "n - 1"}
    boundary = specimen(lambda b: b.reward, reads="reward", claims=claims)
    assert list(advantages_of(boundary, PAIRS, {"epsilon": 0.0})) == ["by deviation (n - 1) and 0"]
    plain = specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "grpo", "standardised": "no"})
    assert list(advantages_of(plain, PAIRS, {})) == ["centred"]


def test_tokens() -> None:
    """k3 of a log-ratio, and the outcome at the last trained token."""
    batch = with_columns(BATCH, ref_logprob=BATCH.logprob - 0.5)
    boundary = specimen(lambda b: b.reward, reads="logprob", stage="kl", claims={"algorithm": "k3"})
    assert values_of(boundary, batch, {})[0, 0].item() == pytest.approx(math.exp(-0.5) - 0.5)
    last = specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "outcome at the last trained token"})
    assert values_of(last, BATCH, {}).tolist() == [[0, 4], [0, 1], [1, 0], [0, 6]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token-mean", 16 / 7), ("sequence-mean-token-mean", 9 / 4), ("sequence-mean-token-sum", 4), ("token-sum", 2)],
)
def test_aggregation(mode: str, expected: float) -> None:
    """Seven tokens in four rows; a fixed length of two."""
    numbers = torch.tensor([[1.0, 2.0], [3.0, 4.0], [2.0, 99.0], [3.0, 1.0]])
    loss = {"loss": Output("", "", "loss")}
    stage: Stage = "aggregate"
    boundary = specimen(lambda b: b.reward, reads="advantage", stage=stage, outputs=loss, claims={"aggregation": mode})
    assert loss_of(boundary, with_columns(BATCH, advantage=numbers), {"length": 2}).item() == pytest.approx(expected)


def test_clipped_loss() -> None:
    """Above the clip with a positive advantage the loss is flat; below it, the ratio counts."""
    one = torch.tensor([[1.0, 1.0]])
    batch = with_columns(filled([[1, 1]], reward=[1], group=[0]), advantage=one, logprob=one * 0 - 1)
    batch = with_columns(batch, old_logprob=torch.tensor([[-2.0, 0.0]]))
    claims = {"algorithm": "ppo", "aggregation": "token-mean"}
    boundary = specimen(lambda b: b.reward, reads="logprob", stage="policy-loss", claims=claims)
    found = loss_of(boundary, batch, {"clip_low": 0.2, "clip_high": 0.3}).item()
    assert found == pytest.approx(-(1.3 + math.exp(-1)) / 2)


def test_unknown() -> None:
    """A name that no table has, or a loss without a claimed aggregation."""
    assert not known_algorithm(specimen(lambda b: b.reward, reads="reward", claims={"algorithm": "own"}))
    assert not known_algorithm(
        specimen(lambda b: b.reward, reads="reward", stage="policy-loss", claims={"algorithm": "ppo"})
    )
