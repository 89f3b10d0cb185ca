"""Which formula an output is held to, and on which columns."""

import math
from dataclasses import replace

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Boundary, Output, Stage
from rl_sentinel.search.claimed_formulas import counted, known_output, references
from specimens import specimen

LOSS = {"loss": Output("", "", "loss")}
TWO = batch_of(
    torch.tensor([[True, False]]),
    length=torch.tensor([2]),
    logprob=torch.tensor([[-1.0, -9.0]]),
    old_logprob=torch.tensor([[-2.0, -9.0]]),
    ref_logprob=torch.tensor([[-1.5, -9.0]]),
    rollout_logprob=torch.tensor([[-1.0 - math.log(4.0), -9.0]]),
    advantage=torch.tensor([[1.0, 5.0]]),
    entropy=torch.tensor([[0.5, 5.0]]),
)


def _loss(reads: str, **claims: str) -> Boundary:
    said = {name.replace("_", "-"): value for name, value in claims.items()}
    stage: Stage = "policy-loss"
    return specimen(lambda b: b.reward, reads=reads, stage=stage, outputs=LOSS, claims=said)


def test_a_loss_wants_its_aggregation() -> None:
    assert known_output(_loss("logprob", algorithm="reinforce", aggregation="token-mean"), "loss")
    assert not known_output(_loss("logprob", algorithm="reinforce"), "loss")
    assert not known_output(_loss("logprob", algorithm="own", aggregation="token-mean"), "loss")


@pytest.mark.parametrize(
    ("reads", "claims", "settings", "expected"),
    [
        ("logprob old_logprob", {"algorithm": "reinforce"}, {}, 1.0),
        ("logprob old_logprob", {"algorithm": "importance sampling"}, {}, -math.e),
        ("logprob rollout_logprob", {"algorithm": "importance sampling"}, {}, -4.0),
        ("logprob rollout_logprob", {"algorithm": "reinforce", "corrected_at_most": "2.0"}, {}, 2.0),
        ("logprob old_logprob rollout_logprob", {"algorithm": "reinforce", "corrected_at_most": "9"}, {}, 4 / math.e),
        ("logprob old_logprob entropy", {"algorithm": "reinforce"}, {"entropy_coeff": 0.5}, 0.75),
        ("logprob old_logprob ref_logprob", {"algorithm": "reinforce", "kl": "k2"}, {"kl_loss_coef": 2.0}, 1.25),
    ],
)
def test_losses(reads: str, claims: dict[str, str], settings: dict[str, float], expected: float) -> None:
    boundary = _loss(reads, aggregation="token-mean", **claims)
    found = references(boundary, "loss", TWO, settings)
    assert [x.item() for x in found.values()] == pytest.approx([expected])


@pytest.mark.parametrize(
    ("quantity", "expected"), [("loss.policy", -math.e), ("loss.entropy", 0.5), ("loss.kl", 0.125), ("loss", -3.0)]
)
def test_terms_that_are_logged(quantity: str, expected: float) -> None:
    """Each term of a loss has its own formula, without its coefficient; the whole has all three."""
    boundary = replace(
        _loss("logprob old_logprob entropy ref_logprob", algorithm="ppo", aggregation="token-mean", kl="k2"),
        outputs={"logged": Output("", "", quantity)},
    )
    settings = {"clip_low": 0.2, "clip_high": 5.0, "entropy_coeff": 2.0, "kl_loss_coef": (math.e - 2) / 0.125}
    assert known_output(boundary, "logged")
    assert [x.item() for x in references(boundary, "logged", TWO, settings).values()] == pytest.approx([expected])


def test_a_logged_kl_wants_its_estimator() -> None:
    boundary = replace(
        _loss("logprob ref_logprob", algorithm="ppo", aggregation="token-mean"),
        outputs={"logged": Output("", "", "loss.kl")},
    )
    assert not known_output(boundary, "logged")


def test_factor() -> None:
    claims = {"algorithm": "squared value", "aggregation": "token-mean"}
    stage: Stage = "value-loss"
    two, one = (
        specimen(lambda b: b.reward, reads="value", stage=stage, outputs=LOSS, claims=claims | more)
        for more in ({}, {"factor": "half"})
    )
    assert len(references(two, "loss", TWO, {})) == 2
    assert list(references(one, "loss", TWO, {})) == ["half the square, by trained tokens"]


def test_straight_through() -> None:
    leaf = torch.tensor([[-1.0, -9.0]], requires_grad=True)
    batch = batch_of(TWO.mask, logprob=leaf, ref_logprob=TWO.ref_logprob)
    stage: Stage = "kl"
    outputs, claims = {"kl": Output("B T", "nats", "kl.k3")}, {"algorithm": "k3", "gradient": "k2"}
    boundary = specimen(lambda b: b.reward, reads="logprob ref_logprob", stage=stage, outputs=outputs, claims=claims)
    value = references(boundary, "kl", batch, {})["k3"]
    assert value[0, 0].item() == pytest.approx(math.exp(-0.5) - 0.5)
    assert torch.autograd.grad(value[0, 0], leaf)[0][0, 0].item() == pytest.approx(0.5)
    assert counted(boundary, "kl", batch).tolist() == [[True, False]]


def test_a_reward_less_the_kl_of_the_old_policy() -> None:
    stage: Stage = "kl"
    outputs = {"token_reward": Output("B T", "reward", "token_reward"), "weight": Output("", "", "kl_coefficient")}
    claims = {"algorithm:token_reward": "less k1", "algorithm:weight": "fixed", "kl": "k1"}
    boundary = specimen(lambda b: b.reward, reads="old_logprob reward", stage=stage, outputs=outputs, claims=claims)
    found = references(boundary, "token_reward", TWO, {"kl_coef": 2.0})
    assert found["less k1, the outcome at the last trained token"].tolist() == [[1.0, 0.0]]
    assert references(boundary, "weight", TWO, {"kl_coef": 2.0})["as it was"].item() == 2.0
    assert counted(boundary, "token_reward", TWO).tolist() == [[True, True]]
    assert known_output(boundary, "weight")


def test_counted_where_it_is_claimed_to_be_nothing() -> None:
    """A formula with one reading counts off the mask too where 0 is claimed there; otherwise at trained tokens."""
    outputs = {"weight": Output("B T", "ratio", "weight")}
    for claims, expected in (({"masked": "yes"}, [True, True]), ({}, [True, False])):
        said = {"algorithm": "token weights", **claims}
        boundary = specimen(lambda b: b.mask, reads="mask", stage="correct", outputs=outputs, claims=said)
        assert counted(boundary, "weight", TWO).flatten().tolist() == expected
