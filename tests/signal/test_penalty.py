"""A KL taken off the reward, and added to the loss, by hand."""

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.kl import k2
from rl_sentinel.signal.penalty import as_loss, in_reward
from rl_sentinel.signal.reduce import Aggregation

MASK = torch.tensor([[True, True, False]])
REWARD = torch.tensor([[0.0, 2.0, torch.nan]])
KL = torch.tensor([[0.5, -1.0, torch.inf]])


def test_in_reward() -> None:
    before = KL.clone()
    shaped, raw = in_reward(REWARD, KL, mask=MASK, coefficient=0.5)
    assert shaped.tolist() == [[-0.25, 2.5, 0.0]]
    assert raw.tolist() == [[0.5, -1.0, 0.0]]
    assert torch.equal(KL, before)
    shaped += 100.0
    assert raw.tolist() == [[0.5, -1.0, 0.0]]
    assert torch.equal(KL, before)


@pytest.mark.parametrize("coefficient", [0.0, 0.05, 7.0])
def test_logged_kl_answers_to_no_coefficient(coefficient: float) -> None:
    _, raw = in_reward(REWARD * coefficient, KL, mask=MASK, coefficient=coefficient)
    assert raw.tolist() == [[0.5, -1.0, 0.0]]


def test_no_gradient_through_the_reward() -> None:
    kl = torch.ones(1, 3, requires_grad=True)
    assert not any(x.requires_grad for x in in_reward(REWARD, kl * 2, mask=MASK, coefficient=0.5))


def test_as_loss() -> None:
    """Half squares 0.5 and 2 by 2 tokens, weighted; the slope is the log-ratio's share."""
    new = torch.tensor([[1.0, -2.0, torch.nan]], requires_grad=True)
    mean = Aggregation("token-mean", 2.0)
    found = as_loss(k2(new, torch.zeros(1, 3), mask=MASK), mask=MASK, coefficient=0.4, aggregation=mean)
    (slope,) = torch.autograd.grad(found, new)
    assert found.item() == pytest.approx(0.5)
    assert slope.flatten().tolist() == pytest.approx([0.2, -0.4, 0.0])


def test_refused() -> None:
    """A trained token without a number, a negative price."""
    with pytest.raises(
        InputError, match=r"^kl\[0, 2\] is inf, expected a finite number: a trained token needs a finite value"
    ):
        in_reward(REWARD.nan_to_num(), KL, mask=torch.ones_like(MASK), coefficient=0.5)
    with pytest.raises(InputError, match=r"^token_reward\[0, 2\] is nan"):
        in_reward(REWARD, KL, mask=torch.ones_like(MASK), coefficient=0.5)
    with pytest.raises(InputError, match=r"^coefficient is -0\.5, expected a number of 0 or more$"):
        in_reward(REWARD, KL, mask=MASK, coefficient=-0.5)
    with pytest.raises(InputError, match=r"^coefficient is nan"):
        as_loss(KL, mask=MASK, coefficient=torch.nan, aggregation=Aggregation("token-mean", 2.0))
