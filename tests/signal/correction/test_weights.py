"""Weights of tokens and of responses, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.errors import InputError
from rl_sentinel.signal.correction.weights import geometric_weights, log_ratios, sequence_weights, token_weights

MASK = torch.tensor([[True, False, True], [False, False, False]])
NEW = torch.tensor([[-1.0, torch.nan, -2.0], [torch.inf, 0.0, -1e4]])
ROLLOUT = torch.tensor([[-1.5, 0.0, -1.0], [torch.inf, torch.nan, 0.0]])


def test_by_hand() -> None:
    """Log-ratios 0.5 and -1, of trained tokens alone; a row without any has 0."""
    assert log_ratios(NEW, ROLLOUT, mask=MASK).tolist() == [[0.5, 0.0, -1.0], [0.0, 0.0, 0.0]]
    tokens = [math.exp(0.5), 0.0, math.exp(-1.0), 0.0, 0.0, 0.0]
    assert token_weights(NEW, ROLLOUT, mask=MASK).flatten().tolist() == pytest.approx(tokens)
    assert sequence_weights(NEW, ROLLOUT, mask=MASK).tolist() == pytest.approx([math.exp(-0.5), 0.0])
    assert geometric_weights(NEW, ROLLOUT, mask=MASK).tolist() == pytest.approx([math.exp(-0.25), 0.0])


def test_constant() -> None:
    new = NEW.clone().requires_grad_()
    for weights in (token_weights, sequence_weights, geometric_weights):
        assert not weights(new, ROLLOUT, mask=MASK).requires_grad


def test_overflow_is_infinite() -> None:
    far, mask = torch.full((1, 2), 60.0), torch.tensor([[True, True]])
    assert sequence_weights(far, torch.zeros(1, 2), mask=mask).tolist() == [torch.inf]


def test_refused() -> None:
    """A trained token without a log-prob, of either policy."""
    everywhere = torch.ones_like(MASK)
    with pytest.raises(
        InputError, match=r"^logprob\[0, 1\] is nan, expected a finite number: a trained token needs a finite value"
    ):
        token_weights(NEW, ROLLOUT.nan_to_num(), mask=everywhere)
    with pytest.raises(InputError, match=r"^rollout_logprob\[1, 0\] is inf"):
        sequence_weights(NEW.nan_to_num(), ROLLOUT, mask=everywhere)
