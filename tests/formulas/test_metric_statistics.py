"""Statistics over tokens, rows and groups, by hand."""

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Output
from rl_sentinel.formulas.metric_statistics import STATISTICS, over_rows, over_tokens, row_reductions

BATCH = batch_of(torch.tensor([[True, True], [True, False], [False, False]]), group=torch.tensor([4, 4, 9]))
TOKENS = {"x": torch.tensor([[1.0, 3.0], [5.0, 7.0], [9.0, 9.0]])}


def test_row_without_a_trained_token_has_0() -> None:
    rows = row_reductions(TOKENS, BATCH.mask)
    assert {n: x.tolist() for n, x in rows.items()} == {"x, row mean": [2.0, 5.0, 0.0], "x, row sum": [4.0, 5.0, 0.0]}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean of x over trained tokens", 3.0),
        ("mean of x over response tokens", 34 / 6),
        ("mean of x, row mean over live rows", 3.5),
        ("mean of x, row sum over all rows", 3.0),
        ("mean of x, row mean over groups of live rows", 3.5),
        ("sum of x", 9.0),
        ("sum of x by the width", 1.5),
    ],
)
def test_mean_over_tokens(name: str, value: float) -> None:
    """Nine is the sum of the three trained tokens, among six positions."""
    found = over_tokens(TOKENS, BATCH, Output("", "", ""), STATISTICS["mean"])
    assert found[name].item() == pytest.approx(value)


def test_declared_population_leaves_others_out() -> None:
    found = over_rows({"x": torch.tensor([2.0, 5.0, 8.0])}, BATCH, Output("", "", "", over="live"), STATISTICS["max"])
    assert {name: x.item() for name, x in found.items() if "groups" not in name} == {
        "maximum of x over live rows": 5.0,
        "maximum of x over scored live rows": 5.0,
    }


def test_only_one_definition() -> None:
    """Others are not computed."""
    name = "mean of x over trained tokens"
    found = over_tokens(TOKENS, BATCH, Output("", "", ""), STATISTICS["mean"], name)
    assert found[name].item() == 3.0
    assert "mean of x over response tokens" not in found
