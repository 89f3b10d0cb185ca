"""Rewards per token, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.token_values import OVERLONG, REWARDED, VALUES

#: Ratios 4 and 1/2, another where nothing is trained; then 1/2 alone.
RATIOS = batch_of(
    torch.tensor([[True, True, False], [True, False, False]]),
    logprob=torch.zeros(2, 3),
    rollout_logprob=torch.tensor([[-math.log(4.0), math.log(2.0), 1.0], [math.log(2.0), 1.0, 1.0]]),
)


def test_where_an_outcome_stands() -> None:
    mask = torch.tensor([[True, False, False], [False, False, False]])
    batch = batch_of(mask, reward=torch.tensor([2.0, 5.0]), length=torch.tensor([2, 3]))
    found = {name: next(iter(VALUES[name](batch, {}).values())).tolist() for name in REWARDED}
    assert found["outcome at the last trained token"] == [[2, 0, 0], [0, 0, 0]]
    assert found["outcome at the last response token"] == [[0, 2, 0], [0, 0, 5]]


def test_what_a_long_response_pays() -> None:
    mask = torch.tensor([[True] * 4, [True] * 4, [True] * 4, [False] * 4])
    length = torch.tensor([1, 2, 4, 3])
    batch = batch_of(mask, reward=torch.tensor([2.0, 2.0, 2.0, 5.0]), length=length)
    found = VALUES[OVERLONG](batch, {"limit": 3, "buffer": 2, "factor": 0.5})
    assert next(iter(found.values())).tolist() == [[2, 0, 0, 0], [0, 1.75, 0, 0], [0, 0, 0, 1.5], [0, 0, 4.5, 0]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"level": "token", "high": 3.0}, [[3, 0.5, 0], [0.5, 0, 0]]),
        ({"level": "token", "low": 0.75, "high": 5.0}, [[4, 0, 0], [0, 0, 0]]),
        ({"level": "sequence", "high": 1.5}, [[1.5, 1.5, 0], [0.5, 0, 0]]),
        ({"level": "geometric", "high": 1.25}, [[1.25, 1.25, 0], [0.5, 0, 0]]),
    ],
)
def test_weights(settings: dict[str, float], expected: list[list[float]]) -> None:
    """Held above; with a lower bound 0 outside; of a sequence the product over its tokens, or their mean."""
    found = VALUES["weight of the sampler"](RATIOS, settings)["as it is"]
    assert found.tolist() == [pytest.approx(row) for row in expected]


def test_normalized_weights() -> None:
    found = VALUES["weight of the sampler"](RATIOS, {"level": "sequence", "high": 1.5, "normalized": True})
    assert {n: round(x[0, 0].item(), 6) for n, x in found.items()} == {
        "by the mean of tokens": round(1.5 / (3.5 / 3), 6),
        "by the mean of rows": 1.5,
    }


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"estimator": "k1", "low": -1.0, "high": 1.0}, [0, 1, 1]),
        ({"estimator": "k1", "low": -0.75, "high": 1.0, "over": "sum"}, [1, 1, 1]),
        ({"estimator": "k1", "low": -0.25, "high": 1.0, "over": "mean"}, [0, 0, 1]),
        ({"estimator": "k2", "high": 0.5}, [0, 1, 1]),
        ({"estimator": "k3", "high": 0.25}, [0, 1, 1]),
        ({"estimator": "k3", "high": 1.0, "over": "max"}, [0, 0, 1]),
        ({"estimator": "k2", "high": math.log(2.0) ** 2 / 2}, [0, None, 1]),
    ],
)
def test_keeps(settings: dict[str, float], expected: list[float | None]) -> None:
    """Of the first row: log-ratios of two and of minus one times the log of 2, which is 0.693; open at a bound."""
    found = VALUES["kept against the sampler"](RATIOS, settings)["as it is"][0]
    assert [None if math.isnan(x) else x for x in found.tolist()] == expected
