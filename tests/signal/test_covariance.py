"""The choice of tokens by covariance, by hand."""

from typing import Any

import pytest
import torch

from rl_sentinel.signal.covariance import covariances, drawn_between, largest

MASK = torch.tensor([[True, True, False], [True, False, False]])
COVARIANCE = torch.tensor([[0.5, 3.0, 99.0], [1.0, 99.0, 99.0]])


def test_covariances() -> None:
    """About the means of trained tokens: log-probs -2, advantages 1; nothing is read elsewhere."""
    logprob = torch.tensor([[-1.0, -2.0, torch.nan], [-3.0, torch.inf, 0.0]], requires_grad=True)
    advantage = torch.tensor([[3.0, 0.0, torch.nan], [0.0, torch.inf, 0.0]])
    found = covariances(logprob, advantage, mask=MASK)
    assert found.tolist() == [[2.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert not found.requires_grad
    assert covariances(logprob, advantage, mask=torch.zeros_like(MASK)).tolist() == [[0.0] * 3] * 2


def test_largest() -> None:
    assert largest(COVARIANCE, mask=MASK, share=0.67).tolist() == [[False, True, False], [True, False, False]]
    assert largest(COVARIANCE, mask=MASK, share=0.5).sum() == 1
    assert largest(COVARIANCE, mask=MASK, share=0.01).tolist() == [[False, True, False], [False, False, False]]
    equal = largest(torch.tensor([[2.0, 1.0, 2.0]]), mask=torch.ones(1, 3).bool(), share=0.3)
    assert equal.tolist() == [[True, False, True]]
    assert not largest(COVARIANCE, mask=torch.zeros_like(MASK), share=1.0).any()


def test_drawn_between() -> None:
    source = torch.Generator().manual_seed(1)
    inside: dict[str, Any] = {"mask": MASK, "low": 0.5, "high": 99.0, "generator": source}
    assert drawn_between(COVARIANCE, share=1.0, **inside).tolist() == [[False, True, False], [True, False, False]]
    seen = {tuple(drawn_between(COVARIANCE, share=0.34, **inside).flatten().tolist()) for _ in range(40)}
    assert len(seen) == 2
    assert {sum(s) for s in seen} == {1}
    assert not drawn_between(COVARIANCE, mask=MASK, low=5.0, high=6.0, share=1.0, generator=None).any()


def test_bad_numbers_are_named() -> None:
    with pytest.raises(ValueError, match=r"share is 0, expected a number above 0 and at most 1"):
        largest(COVARIANCE, mask=MASK, share=0)
    with pytest.raises(ValueError, match=r"share is 1.5"):
        drawn_between(COVARIANCE, mask=MASK, low=0.0, high=1.0, share=1.5, generator=None)
    with pytest.raises(ValueError, match=r"low is 2.0, expected less than high \(1.0\)"):
        drawn_between(COVARIANCE, mask=MASK, low=2.0, high=1.0, share=0.5, generator=None)


@pytest.mark.parametrize(("share", "count"), [(0.29, 29), (0.57, 57), (0.3, 30), (0.299, 29), (1.0, 100)])
def test_share_is_no_binary_fraction(share: float, count: int) -> None:
    """0.29 of 100 tokens are 29."""
    covariance = torch.arange(100.0).unsqueeze(0)
    assert largest(covariance, mask=covariance >= 0, share=share).sum() == count
