"""Every number that counts is finite."""

import math

import torch

from rl_sentinel.core.expectations import Finite

NUMBERS = torch.tensor([[1.0, 2.0], [math.nan, math.inf]])


def test_sentence_names_the_first_number() -> None:
    assert Finite("advantage", NUMBERS).sentence() == "advantage is NaN at row 1, token 0"
    rest = torch.tensor([[True, True], [False, True]])
    reason = "the batch has one row"
    assert Finite("loss", NUMBERS, rest, reason=reason).sentence() == f"loss is infinity at row 1, token 1: {reason}"


def test_measure() -> None:
    first = torch.tensor([[True, True], [False, False]])
    assert Finite("x", NUMBERS).measure() == (math.inf, 0.0)
    assert Finite("x", NUMBERS, first).measure() == (0.0, 0.0)
    assert Finite("x", NUMBERS, first & False).measure() is None
    assert Finite("x", torch.zeros(0)).measure() is None
    assert Finite("x", NUMBERS).exact
