"""Definitions of logged quantities, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.case import Settings
from rl_sentinel.formulas.metric_definitions import _run_lengths, definitions, is_defined

READS = frozenset({"reward", "logprob", "old_logprob", "advantage", "length", "mask"})
RANGE = {"clip_low": 0.2, "clip_high": 0.2}
BATCH = batch_of(
    torch.tensor([[True, True], [True, False], [False, False]]),
    reward=torch.tensor([1.0, 3.0, 8.0]),
    advantage=torch.tensor([[1.0, -1.0], [1.0, 1.0], [1.0, 1.0]]),
    logprob=torch.tensor([[-1.0, -1.0], [-2.0, -1.0], [-1.0, -1.0]]),
    old_logprob=torch.tensor([[-2.0, -2.0], [-1.0, -1.0], [-1.0, -1.0]]),
)


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("prompt tokens", [1, 2, 3]),
        ("tokens that do not train", [2, 4, 5]),
        ("tokens before the first trained one", [2, 2, 5]),
    ],
)
def test_lengths_of_prompts(name: str, lengths: list[int]) -> None:
    """A response whose first token does not train, one with a gap, one that does not train."""
    batch = batch_of(
        torch.tensor([[False, True, True], [True, False, False], [False, False, False]]),
        length=torch.tensor([3, 3, 2]),
        prompt_length=torch.tensor([1, 2, 3]),
    )
    output = Output("B", "", "prompt_length")
    found = definitions(output, batch, frozenset({"length", "prompt_length", "mask"}), {})
    assert found[name].tolist() == lengths


@pytest.mark.parametrize(
    ("output", "name", "value"),
    [
        (Output("", "", "reward.mean"), "mean of outcome reward over live rows", 2.0),
        (Output("", "", "reward.mean"), "mean of outcome reward over all rows", 4.0),
        (Output("", "", "reward.std"), "deviation (n) of outcome reward over live rows", 1.0),
        (Output("", "", "length.max"), "maximum of trained tokens over live rows", 2.0),
        (Output("", "", "kl.k1"), "mean of k1 of logprob against old_logprob over trained tokens", 1 / 3),
        (Output("", "", "kl.k1"), "mean of k1 of logprob against old_logprob, row mean over live rows", 0.0),
        (Output("", "", "kl.k2"), "mean of k2 of logprob against old_logprob over trained tokens", 0.5),
        (Output("", "", "ratio.max"), "maximum of ratio of logprob to old_logprob over trained tokens", math.e),
        (Output("", "", "clip_fraction"), "mean of outside the range over trained tokens", 1.0),
        (Output("", "", "clip_fraction"), "mean of where clipping binds over trained tokens", 1 / 3),
    ],
)
def test_by_hand(output: Output, name: str, value: float) -> None:
    """Rows and tokens of three rows, of which one is dead."""
    assert is_defined(output, READS, RANGE)
    assert definitions(output, BATCH, READS, RANGE)[name].item() == pytest.approx(value)


@pytest.mark.parametrize(
    ("population", "value"),
    [("live rows", (2.0 + 5.0) / 2), ("all rows", (2.0 + 6.5) / 2), ("scored rows", (1.0 + 6.5) / 2)],
)
def test_means_over_groups(population: str, value: float) -> None:
    """Group 9 has rewards 1 and 3, of which the second is not scored; group -4 has 5, and 8 on a dead row."""
    batch = batch_of(
        torch.tensor([[True], [True], [True], [False]]),
        reward=torch.tensor([1.0, 5.0, 3.0, 8.0]),
        group=torch.tensor([9, -4, 9, -4]),
        scored=torch.tensor([True, True, False, True]),
    )
    found = definitions(Output("", "", "reward.mean"), batch, READS, {})
    assert found[f"mean of outcome reward over groups of {population}"].item() == pytest.approx(value)


def test_declared_population() -> None:
    live = definitions(Output("", "", "reward.mean", over="live"), BATCH, READS, {})
    assert not [name for name in live if "all rows" in name]


@pytest.mark.parametrize("quantity", ["speed", "kl.other", "entropy.mean", "reward.median", "clip_fraction"])
def test_unknown(quantity: str) -> None:
    assert not is_defined(Output("", "", quantity), READS, {})


def test_values_clipped() -> None:
    """Outside the range of 1 twice; held, one is worse and one is better."""
    mask = torch.tensor([[True, True, True, False]])
    columns = {"value": torch.tensor([[2.0, 2.0, 0.5, 9.0]]), "returns": torch.tensor([[3.0, 0.0, 0.0, 0.0]])}
    batch, output = batch_of(mask, **columns), Output("", "", "value_clip_fraction", over="live")
    reads = frozenset({"value", "old_value", "returns", "mask"})
    assert is_defined(output, reads, {"value_clip": 1.0})
    found = {n: x.item() for n, x in definitions(output, batch, reads, {"value_clip": 1.0}).items()}
    assert found["mean of outside the range over trained tokens"] == pytest.approx(2 / 3)
    assert found["mean of where the held error is larger over trained tokens"] == pytest.approx(1 / 3)


def test_rows_clipped() -> None:
    """Mean log-ratios of 1, where the advantages' mean is 0, and of -1 with one above 0: only for the first sign."""
    output = Output("", "", "sequences_clipped", over="live")
    assert is_defined(output, READS, RANGE)
    found = {n: x.item() for n, x in definitions(output, BATCH, READS, RANGE).items()}
    assert found["mean of rows outside the range over live rows"] == 1.0
    assert found["mean of rows where clipping binds over live rows"] == 0.0


def test_full_length() -> None:
    found = definitions(Output("", "", "full_length.mean"), BATCH, frozenset({"length", "mask"}), {})
    assert found["mean of no room left over all rows"].item() == 1.0
    assert found["mean of every position trained over all rows"].item() == pytest.approx(1 / 3)


def test_run_lengths() -> None:
    """Runs of 2, 1 and 3 trained tokens in two rows, which touch where the rows meet."""
    batch = batch_of(torch.tensor([[True, True, False, True], [True, True, True, False]]))
    assert _run_lengths(batch.mask).tolist() == [2.0, 1.0, 3.0]
    output = Output("", "tokens", "run_length.mean")
    assert is_defined(output, frozenset({"mask"}), {})
    found = definitions(output, batch, frozenset({"mask"}), {})
    assert {name: value.item() for name, value in found.items()} == {"mean": 2.0}
    nothing = batch_of(torch.zeros(1, 2, dtype=torch.bool))
    assert definitions(output, nothing, frozenset({"mask"}), {}) == {}


def test_unscored() -> None:
    batch = batch_of(BATCH.mask, scored=torch.tensor([True, False, False]))
    found = definitions(Output("", "", "unscored", over="live"), batch, frozenset({"scored", "mask"}), {})
    assert found["mean of no score over live rows"].item() == 0.5


def test_of_a_rejection() -> None:
    """Log-ratios of 1 and -1 in one row and 3 in another; the share of tokens and of rows, and what was measured."""
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    batch = batch_of(mask, old_logprob=torch.tensor([[1.0, -1.0], [3.0, 0.0], [9.0, 9.0]]))
    reads = frozenset({"old_logprob", "rollout_logprob", "mask"})
    settings: Settings = {"estimator": "k1", "low": -2.0, "high": 2.0}

    def one(quantity: str, name: str) -> float:
        output = Output("", "", quantity, over="live")
        assert is_defined(output, reads, settings)
        return definitions(output, batch, reads, settings)[name].item()

    assert one("rejected.mean", "mean of rejected over trained tokens") == pytest.approx(1 / 3)
    assert one("rejected_rows.mean", "mean of rows with a rejected token over live rows") == 0.5
    assert one("distance.min", "minimum of distance over trained tokens") == -3
    assert one("too_near.mean", "mean of too_near over trained tokens") == pytest.approx(1 / 3)
    assert one("too_far.mean", "mean of too_far over trained tokens") == 0
    output = Output("", "", "rejected.mean", over="live")
    assert not is_defined(output, reads, {})
    assert definitions(output, batch, reads, {**settings, "high": 1.0}) == {}


def test_ratios_outside_of_a_range() -> None:
    """Ratios of 4, 1 and a quarter, of which one or two are outside; one at a bound is not compared."""
    log_ratio = torch.tensor([[4.0, 1.0, 0.25]]).log()
    batch = batch_of(torch.ones(1, 3).bool(), logprob=log_ratio)
    output, name = (
        Output("", "", "ratio_outside"),
        "mean of ratio of logprob to old_logprob outside over trained tokens",
    )
    for settings, share in (({"least": 0.5, "most": 2.0}, 2 / 3), ({"least": 0.0, "most": 2.0}, 1 / 3)):
        assert is_defined(output, READS, settings)
        assert definitions(output, batch, READS, settings)[name].item() == pytest.approx(share)
    assert name not in definitions(output, batch, READS, {"least": 0.5, "most": 4.0})
    assert not is_defined(output, READS, {})
    distance = definitions(Output("", "", "ratio_distance.mean"), batch, READS, {})
    assert distance["mean of ratio distance of logprob to old_logprob over trained tokens"].item() == pytest.approx(
        1.25
    )
