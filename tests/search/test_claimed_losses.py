"""Which losses per token and which aggregations a boundary is held to."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.search.claimed_losses import aggregated_losses, is_loss, losses_of_tokens, modes_of, of_one_policy
from specimens import specimen

OUTPUTS = {"loss": Output("", "", "loss"), "logged": Output("", "", "loss.kl"), "kl": Output("B T", "nats", "kl.k1")}
TWO = batch_of(torch.tensor([[True, True], [True, False]]), length=torch.tensor([2, 1]))


def _boundary(reads: str, **claims: str) -> Boundary:
    stage: Stage = "policy-loss"
    return specimen(lambda b: b.reward, reads=reads, stage=stage, outputs=OUTPUTS, claims=claims)


def test_outputs_that_are_losses() -> None:
    boundary = _boundary("logprob")
    assert [is_loss(boundary, name) for name in OUTPUTS] == [True, True, False]


def test_formula_of_a_loss_and_of_a_term() -> None:
    boundary = _boundary("logprob ref_logprob", kl="k2")
    assert losses_of_tokens(boundary, "loss", "reinforce") is not None
    assert losses_of_tokens(boundary, "loss", "unknown") is None
    assert losses_of_tokens(boundary, "logged", "unknown") is not None
    assert losses_of_tokens(boundary, "kl", "k1") is None


def test_a_ratio_of_one_has_two_readings() -> None:
    boundary = _boundary("logprob")
    losses = losses_of_tokens(boundary, "loss", "ppo")
    assert losses is not None
    assert of_one_policy(boundary)
    assert not of_one_policy(_boundary("logprob old_logprob"))
    assert list(losses(TWO, {"clip_low": 0.2, "clip_high": 0.2})) == ["by a ratio of 1", "by the log-prob"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("", []), ("token-mean", [1.0]), ("sequence-mean-token-sum", [1.5, 1.5])],
)
def test_aggregations(mode: str, expected: list[float]) -> None:
    """Three trained tokens of two rows with a loss of 1 each; a mean over rows has a reading for all, and for live."""
    boundary = _boundary("logprob", **({"aggregation": mode} if mode else {}))
    assert modes_of(boundary) == ((mode,) if mode else ())
    found = aggregated_losses(boundary, "loss", {"": torch.ones(2, 2).double()}, TWO, {})
    assert [x.item() for x in found.values()] == expected
