"""Updates behind, by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.staleness import AGES, FRESH

MASK = torch.tensor([[True, True], [True, False], [False, False]])
BATCH = batch_of(MASK, version=torch.tensor([[3, 4], [4, 0], [0, 9]]))


def test_ages() -> None:
    found = {n: age(BATCH, {"current": 5}).item() for n, age in AGES.items()}
    assert found == {
        "mean updates behind": 4 / 3,
        "most updates behind": 2.0,
        "share of rows of several versions": 0.5,
    }


def test_fresh() -> None:
    settings: Settings = {"current": 5, "most": 1}
    assert FRESH["fresh rows"](BATCH, settings).tolist() == [0.0, 1.0, 0.0]
    assert FRESH["fresh rows"](BATCH, {**settings, "most": 2}).tolist() == [1.0, 1.0, 0.0]


def test_nothing_trained() -> None:
    """0 throughout."""
    batch = batch_of(torch.zeros(2, 1))
    assert [age(batch, {"current": 5}).item() for age in AGES.values()] == [0.0, 0.0, 0.0]
