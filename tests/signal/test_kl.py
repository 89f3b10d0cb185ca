"""Estimators of a KL: by hand, and against the exact KL of two distributions."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kl import absolute, absolute_plus, importance_weighted, k1, k1_plus, k2, k3, k3_plus

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


def test_absolute() -> None:
    assert absolute(NEW, REF, mask=MASK).tolist() == [[0.5, 1.0, 0.0]]


@pytest.mark.parametrize(("plus", "plain"), [(absolute_plus, absolute), (k1_plus, k1), (k3_plus, k3)])
def test_straight_through(plus: Callable[..., Tensor], plain: Callable[..., Tensor]) -> None:
    """The numbers are the plain estimator's to the bit, the slope is the log-ratio, which is k2's."""
    new = NEW.nan_to_num().requires_grad_()
    found = plus(new, REF, mask=MASK)
    (slope,) = torch.autograd.grad(found.sum(), new)
    assert torch.equal(found, plain(new, REF, mask=MASK))
    assert slope.tolist() == [[0.5, -1.0, 0.0]]


def test_importance_weighted() -> None:
    """Sampled from an old policy, the weighted k3 and its gradient are the KL's and its gradient."""
    sampled, reference = torch.tensor([[0.1, 0.3, 0.6]]).double(), torch.tensor([[0.2, 0.2, 0.6]]).double()
    logits, everywhere = torch.tensor([[0.3, -0.2, 0.1]]).double().requires_grad_(), torch.ones_like(MASK)
    policy = logits.log_softmax(1)
    exact = (policy.exp() * (policy - reference.log())).sum()
    estimate = k3(policy, reference.log(), mask=everywhere)
    found = (sampled * importance_weighted(estimate, policy, sampled.log(), mask=everywhere)).sum()
    assert found.item() == pytest.approx(exact.item())
    slopes = [torch.autograd.grad(x, logits, retain_graph=True)[0].flatten().tolist() for x in (found, exact)]
    assert slopes[0] == pytest.approx(slopes[1])


@pytest.mark.parametrize("estimate", [k1, k2, k3, absolute, absolute_plus, k1_plus, k3_plus])
def test_refused(estimate: Callable[..., Tensor]) -> None:
    """A mask of floats, and a reference of another width."""
    with pytest.raises(InputError, match=r"^mask has dtype float32, expected bool"):
        estimate(NEW, REF, mask=MASK.float())
    with pytest.raises(InputError, match=r"^ref_logprob has shape \[1, 2\], expected \[1, 3\]: that of logprob$"):
        estimate(NEW, REF[:, :2], mask=MASK)
