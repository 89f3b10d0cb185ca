"""Estimators of a KL: by hand, and against the exact KL of two distributions."""

import math

import pytest
import torch

from rl_sentinel.signal.kl import k1, k2, k3

MASK = torch.tensor([[True, True, False]])
NEW = torch.tensor([[-1.0, -2.0, torch.nan]])
REF = torch.tensor([[-1.5, -1.0, 0.0]])


def test_by_hand() -> None:
    """Log-ratios 0.5 and -1; nothing spreads from the untrained token."""
    assert k1(NEW, REF, mask=MASK).tolist() == [[0.5, -1.0, 0.0]]
    assert k2(NEW, REF, mask=MASK).tolist() == [[0.125, 0.5, 0.0]]
    expected = [math.exp(-0.5) - 1 + 0.5, math.e - 1 - 1, 0.0]
    assert k3(NEW, REF, mask=MASK).flatten().tolist() == pytest.approx(expected)


def test_expectation() -> None:
    """Weighed by the policy's own probabilities, k1 and k3 give the KL."""
    policy, reference = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.2, 0.6]])
    exact = (policy * (policy / reference).log()).sum()
    everywhere = torch.ones_like(MASK)
    for estimate in (k1, k3):
        found = estimate(policy.log(), reference.log(), mask=everywhere)
        assert torch.allclose((policy * found).sum(), exact)
