"""What a rejection measures and keeps, by hand."""

import math

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.rejections import kept, measured

#: Log-ratios 1 and -1, and one where nothing is trained; then 2 alone.
BATCH = batch_of(
    torch.tensor([[True, True, False], [True, False, False]]),
    logprob=torch.tensor([[1.0, -1.0, 9.0], [2.0, 0.0, 0.0]]),
)


def test_what_is_measured() -> None:
    assert measured(BATCH, {"estimator": "k1"}).tolist() == [[-1, 1, 0], [-2, 0, 0]]
    assert measured(BATCH, {"estimator": "k2", "over": "sum"}).tolist() == [[1, 1, 0], [2, 0, 0]]
    assert measured(BATCH, {"second_estimator": "k1", "second_over": "mean"}, "second_").tolist() == [
        [0, 0, 0],
        [-2, 0, 0],
    ]
    assert measured(BATCH, {"estimator": "k1", "over": "min"}).tolist() == [[-1, -1, 0], [-2, 0, 0]]


def test_what_is_kept() -> None:
    tokens: Settings = {"estimator": "k1", "low": -1.5, "high": 0.5}
    assert kept(BATCH, tokens).tolist() == [[1, 0, 1], [0, 1, 1]]
    rows: Settings = {"second_estimator": "k2", "second_over": "max", "second_high": 1.0}
    assert kept(BATCH, {"estimator": "k2", "high": 9.0, **rows}).tolist() == [[1, 1, 1], [0, 1, 1]]
    assert kept(BATCH, {**tokens, **rows}).tolist() == [[1, 0, 1], [0, 1, 1]]
    assert math.isnan(kept(BATCH, {"estimator": "k2", "high": 0.5})[0, 0])
