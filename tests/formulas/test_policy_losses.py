"""Formulas of losses by hand, on one token each."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.policy_losses import LOSSES

CLIPS = {"clip_low": 0.2, "clip_high": 0.3}


@pytest.mark.parametrize(
    ("algorithm", "settings", "ratio", "weight", "expected"),
    [
        ("ppo", CLIPS, 2.0, 1.0, -1.3),
        ("ppo", CLIPS, 2.0, -1.0, 2.0),
        ("ppo", CLIPS, 0.5, -1.0, 0.8),
        ("dual clip", CLIPS | {"ceiling": 3.0}, 5.0, -2.0, 6.0),
        ("dual clip", CLIPS | {"ceiling": 3.0}, 5.0, 2.0, -2.6),
        ("cispo", CLIPS, 2.0, 1.0, 1.3),  # the log-prob is -1
        ("cispo", CLIPS, 0.5, -3.0, -2.4),
        ("gspo", CLIPS, 0.5, -1.0, 0.8),
        ("sapo", {"temperature": 1.0, "negative_temperature": 2.0}, 1.0, -1.0, 1.0),
        ("sapo", {"temperature": 1.0, "negative_temperature": 2.0}, 2.0, 1.0, -4 / (1 + math.exp(-1.0))),
        ("gmpo", {"clip_low": 0.4, "clip_high": 0.5}, math.e, 2.0, -2 * math.exp(0.5)),
        ("gmpo", {"clip_low": 0.4, "clip_high": 0.5}, 1 / math.e, -2.0, 2 * math.exp(-0.4)),
        ("importance sampling", {}, 5.0, -2.0, 10.0),
        ("reinforce", {}, 5.0, -2.0, -2.0),
    ],
)
def test_one_token(algorithm: str, settings: dict[str, float], ratio: float, weight: float, expected: float) -> None:
    """The log-prob is -1, the ratio to the old policy as given."""
    old = torch.tensor([[-1.0 - math.log(ratio)]])
    batch = batch_of(
        torch.tensor([[True]]), logprob=torch.tensor([[-1.0]]), old_logprob=old, advantage=torch.tensor([[weight]])
    )
    assert LOSSES[algorithm](batch, settings).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["gspo", "gmpo"])
def test_responses_have_one_ratio(algorithm: str) -> None:
    """Ratios 4 and 1 have the geometric mean 2, at either token; the third is not trained."""
    mask, old = torch.tensor([[True, True, False]]), torch.tensor([[-math.log(4.0), 0.0, 9.0]])
    batch = batch_of(mask, logprob=torch.zeros(1, 3), old_logprob=old, advantage=torch.ones(1, 3))
    found = LOSSES[algorithm](batch, {"clip_low": 9.0, "clip_high": 9.0})
    assert found[0, :2].tolist() == pytest.approx([-2.0, -2.0])


@pytest.mark.parametrize(
    ("algorithm", "expected"), [("ppo of uncertain tokens", [0.0, -4.0]), ("gmpo of uncertain tokens", [-4.0, -4.0])]
)
def test_tokens_of_high_entropy(algorithm: str, expected: list[float]) -> None:
    """Only the second of two trained tokens is in the upper half; an untrained one sets no threshold."""
    mask, old = torch.tensor([[True, True, False]]), torch.tensor([[0.0, -math.log(4.0), 0.0]])
    batch = batch_of(
        mask,
        logprob=torch.zeros(1, 3),
        old_logprob=old,
        advantage=torch.ones(1, 3),
        entropy=torch.tensor([[1.0, 2.0, 9.0]]),
    )
    found = LOSSES[algorithm](batch, {"clip_low": 9.0, "clip_high": 9.0, "top_entropy_quantile": 0.5})
    assert found[0, :2].tolist() == pytest.approx(expected)


def test_dynamic_fine_tuning() -> None:
    """Half a chance weighs the token by a half, through which no gradient flows."""
    logprob = torch.tensor([[-math.log(2.0)]], requires_grad=True)
    (loss,) = LOSSES["dynamic fine-tuning"](batch_of(torch.ones(1, 1).bool(), logprob=logprob), {}).flatten()
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2.0) / 2)
    assert logprob.grad is not None
    assert logprob.grad.item() == pytest.approx(-0.5)
