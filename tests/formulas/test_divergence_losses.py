"""Losses that choose tokens, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.formulas.divergence_losses import DIVERGENCES


def _one(share: float, before: float, weight: float) -> Batch:
    """One token whose probability was ``before`` and is ``share``."""
    logs = {"logprob": torch.tensor([[math.log(share)]]), "old_logprob": torch.tensor([[math.log(before)]])}
    return batch_of(torch.tensor([[True]]), advantage=torch.tensor([[weight]]), **logs)


@pytest.mark.parametrize(
    ("algorithm", "share", "before", "weight", "expected"),
    [
        ("dppo tv", 0.5, 0.25, 1.0, 0.0),  # moved up by more than 0.2, with the advantage
        ("dppo tv", 0.5, 0.25, -1.0, 2 * math.log(0.5)),  # moved up, against it
        ("dppo tv", 0.5, 0.4, 1.0, -1.25 * math.log(0.5)),  # not so far
        ("dppo tv", 0.2, 0.5, -1.0, 0.0),  # moved down by more than 0.1, with the advantage
        ("dppo tv", 0.5, 0.1, -1.0, 4 * math.log(0.5)),  # the ratio of 5 is held at 4
        ("dppo kl", 0.5, 0.25, 1.0, -2 * math.log(0.5)),  # 0.13 nats, within 0.2
        ("dppo kl", 0.25, 0.5, -1.0, 0.0),  # 0.14 nats, beyond 0.1
    ],
)
def test_by_probability(algorithm: str, share: float, before: float, weight: float, expected: float) -> None:
    """A bound of 0.2 above and of 0.1 below."""
    found = DIVERGENCES[algorithm](_one(share, before, weight), {"clip_low": 0.1, "clip_high": 0.2, "ceiling": 4.0})
    assert found is not None
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_no_probability() -> None:
    assert DIVERGENCES["dppo kl"](_one(0.5, 1.5, 1.0), {"clip_low": 1, "clip_high": 1, "ceiling": 4.0}) is None


def test_quadratic_penalty() -> None:
    found = DIVERGENCES["quadratic penalty"](_one(0.5, 0.25, 3.0), {"penalty": 0.5})
    assert found is not None
    assert found.item() == pytest.approx(-3 * math.log(0.5) + 0.25 * math.log(2) ** 2)


def _four(**more: torch.Tensor) -> Batch:
    """Four tokens with covariances of 2.25, 0.25, 0.75 and -0.25, about means of 0 and of -2.5."""
    columns = {
        "logprob": torch.tensor([[-1.0, -2.0, -4.0, -3.0]]),
        "old_logprob": torch.tensor([[-1.0, -2.0, -4.0, -3.0]]),
        "advantage": torch.tensor([[1.5, 0.5, -0.5, -1.5]]),
    }
    return batch_of(torch.ones(1, 4).bool(), **(columns | more))


def test_kl_cov() -> None:
    old = torch.tensor([[-1.5, -2.0, -4.25, -3.0]])
    found = DIVERGENCES["kl-cov"](_four(old_logprob=old), {"share": 0.25, "penalty": 2.0})
    assert found is not None
    assert found[0].tolist() == pytest.approx([-1.5 * math.exp(0.5) + 1, -0.5, 0.5 * math.exp(0.25), 1.5])
    alike = _four(advantage=torch.zeros(1, 4))
    assert DIVERGENCES["kl-cov"](alike, {"share": 0.25, "penalty": 2.0}) is None


def test_clip_cov() -> None:
    settings = {"clip_low": 0.2, "clip_high": 0.2, "share": 0.25, "cov_low": 1.0, "cov_high": 5.0}
    found = DIVERGENCES["clip-cov"](_four(), settings)
    assert found is not None
    assert found[0].tolist() == pytest.approx([0.0, -0.5, 0.5, 1.5])
    assert DIVERGENCES["clip-cov"](_four(), settings | {"cov_low": 0.5}) is None
