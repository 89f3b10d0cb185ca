"""MET005: a sound, a broken and a refusing specimen."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.metric_depends_on_split import LAW
from specimens import judged, specimen

OUTPUTS = {"loss": Output("", "", "loss"), "mean entropy": Output("", "nats", "entropy.mean", over="live")}
READS = "entropy mask"
CUTS: dict[str, Any] = {"follows": frozenset({"micro_batches", "ranks"})}


def _sums(batch: Batch, count: int) -> tuple[Tensor, Tensor]:
    parts = [take_rows(batch, index) for index in torch.arange(batch.rows).chunk(count)]
    total = torch.stack([torch.where(p.mask, p.entropy, 0.0).sum() for p in parts])
    return total, torch.stack([p.mask.sum() for p in parts])


def _weighted(batch: Batch, micro_batches: int, ranks: int) -> Mapping[str, Tensor]:
    total, tokens = _sums(batch, micro_batches * ranks)
    return {"loss": total.sum() * 0, "mean entropy": total.sum() / tokens.sum().clamp(min=1)}


def _mean_of_means(batch: Batch, micro_batches: int, ranks: int) -> Mapping[str, Tensor]:
    total, tokens = _sums(batch, micro_batches * ranks)
    return {"loss": total.sum() * 0, "mean entropy": (total / tokens.clamp(min=1)).mean()}


def _mean_over_ranks(batch: Batch, ranks: int) -> Mapping[str, Tensor]:
    return _mean_of_means(batch, 1, ranks)


def test_sound() -> None:
    """Sums and counts that are added first do not depend on the split."""
    judgement = judged(LAW, specimen(_weighted, reads=READS, stage="policy-loss", outputs=OUTPUTS, **CUTS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """The mean of the means of micro-batches is found with few rows."""
    found = judged(LAW, specimen(_mean_of_means, reads=READS, stage="policy-loss", outputs=OUTPUTS, **CUTS)).found
    assert found is not None
    assert found.case.batch.rows <= 3
    assert re.match(
        r"a number over all trained tokens must not depend on the split, yet splitting \d rows into 2 micro-batches "
        r"moves mean entropy from ",
        found.expectation.sentence(),
    )
    assert LAW.level(found.case) == "contested"


def test_ranks() -> None:
    """So is the mean of the means of ranks, where the rows are cut in no other way."""
    one = specimen(_mean_over_ranks, reads=READS, stage="metric", outputs=OUTPUTS, follows=frozenset({"ranks"}))
    found = judged(LAW, one).found
    assert found is not None
    assert "splitting 2 rows into 2 ranks" in found.expectation.sentence()


@pytest.mark.parametrize(
    ("more", "outputs", "reason"),
    [
        ({}, OUTPUTS, "the boundary does not split the rows"),
        (CUTS, {"loss": OUTPUTS["loss"]}, "the boundary logs no number that is declared over rows"),
    ],
)
def test_not_applicable(more: dict[str, Any], outputs: dict[str, Output], reason: str) -> None:
    """Without a cut, or without a number over rows, nothing is compared."""
    judgement = judged(LAW, specimen(_mean_of_means, reads=READS, stage="metric", outputs=outputs, **more))
    assert (judgement.tried, judgement.reason) == (0, reason)
