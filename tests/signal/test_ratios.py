"""Ratios that overflow, times 0; test_derivatives.py has those of every loss."""

import pytest
import torch

from rl_sentinel.signal import kl
from rl_sentinel.signal.kernels.modes import traced
from rl_sentinel.signal.ratios import exponential, weighed
from rl_sentinel.signal.ready import Ready


def test_infinite_weights_of_nothing() -> None:
    """Of an advantage of 0, and of an estimate of 0; of others they stay infinite."""
    mask = torch.ones(1, 2).bool()
    ready = Ready(
        mask=mask,
        live=mask[:, 0],
        kept=mask[:, 0],
        group=torch.zeros(1).long(),
        reward=torch.zeros(1),
        advantage=torch.tensor([[0.0, -2.0]]),
        outcome=False,
        weight=torch.full((1, 2), torch.inf),
    )
    assert ready.token_advantage().tolist() == [[0.0, -torch.inf]]
    estimate, new = torch.tensor([[0.0, 1.0]]), torch.tensor([[100.0, 100.0]], requires_grad=True)
    found = kl.importance_weighted(estimate, new, torch.zeros(1, 2), mask=mask)
    assert found.tolist() == [[0.0, torch.inf]]
    assert torch.autograd.grad(found[:, 0].sum(), new)[0].tolist() == [[0.0, 0.0]]


def test_what_is_no_number_stays_so() -> None:
    """Only the product of an infinite ratio and 0 is mended."""
    assert weighed(torch.tensor([torch.nan]), torch.tensor([0.0])).isnan().all()
    assert weighed(torch.tensor([torch.inf]), torch.tensor([torch.nan])).isnan().all()
    ratio = torch.tensor([torch.nan, torch.inf], requires_grad=True)
    assert weighed(ratio, torch.zeros(2)).isnan().tolist() == [True, False]


OWN = "ignore:`torch.jit.script` is deprecated:DeprecationWarning"  # torch's own, on the way to forward derivatives


@pytest.mark.filterwarnings(OWN)
def test_gradients() -> None:
    one, other = torch.rand(2, 5, dtype=torch.float64, requires_grad=True).unbind()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: exponential(x) * 2, (one,))
        assert check(weighed, (one, other))
    assert torch.autograd.gradcheck(lambda x, y: weighed(exponential(x), y), (one, other), check_forward_ad=True)
    assert not traced(one)
