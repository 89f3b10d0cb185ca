"""Two tensors are equal up to rounding, and the sentence says where they are not."""

import math

import torch

from rl_sentinel.core.expectations import Change, Equal


def test_nothing_to_compare_is_no_pass() -> None:
    one = torch.ones(2)
    assert Equal("x", one, one, torch.zeros(2, dtype=torch.bool)).measure() is None
    assert Equal("x", one * math.nan, one).measure() is None


def test_nan_is_infinitely_far() -> None:
    assert Equal("x", torch.zeros(1), torch.tensor([math.nan]), tolerance=1e9).measure() == (math.inf, 1e9)


def test_allowance_grows_with_the_magnitude() -> None:
    """64 roundings of float32 per unit of magnitude; a law's own tolerance is exact."""
    near = torch.ones(1) + 1e-6
    small, large = Equal("x", torch.ones(1), near), Equal("x", torch.ones(1), near, scale=99.0)
    assert [m.allowed if (m := e.measure()) else 0.0 for e in (small, large)] == [
        64 * torch.finfo(torch.float32).eps * (1 + 1e-3),
        64 * torch.finfo(torch.float32).eps * (100 + 1e-3),
    ]
    assert not small.exact
    assert Equal("x", torch.ones(1), near, tolerance=0.0).exact


def test_equal_is_no_distance_and_nothing_finite_is_nothing_to_compare() -> None:
    many = torch.tensor([1.0, math.inf])
    assert Equal("x", many, many.clone()).measure() == (0.0, 0.0)
    assert Equal("x", many, many.clone(), torch.tensor([False, True])).measure() is None


def test_sentence_names_the_first_broken_cell() -> None:
    expected, observed = torch.zeros(2, 2), torch.tensor([[5.0, math.nan], [0.0, 1.0]])
    where = torch.tensor([[False, True], [True, True]])
    equal = Equal("advantage", expected, observed, where, reason="all rewards are 1")
    assert equal.sentence() == "advantage is NaN at row 0, token 1, expected 0: all rewards are 1"
    assert equal.broken().tolist() == [[False, True], [False, True]]


def test_sentence_of_a_change() -> None:
    rows = Equal("advantage", torch.zeros(2), torch.tensor([-math.sqrt(0.5), 0.0]), change=Change("its reward"))
    assert rows.sentence() == "its reward moves advantage of row 0 from 0 to -0.7071"
    loss = Equal("loss", torch.ones(()), torch.zeros(()), change=Change("its reward"), reason="row 1 is not trained")
    assert loss.sentence() == "row 1 is not trained, yet its reward moves loss from 1 to 0"
    assert Equal("loss", torch.ones(()), torch.zeros(()), says="as the law says").sentence() == "as the law says"


def test_shapes_that_differ() -> None:
    equal = Equal("advantage", torch.zeros(1, 2), torch.zeros(2))
    assert equal.measure() == (math.inf, 0.0)
    assert equal.sentence() == "advantage has shape [2], expected [1, 2]"
    assert bool(equal.broken().all())
