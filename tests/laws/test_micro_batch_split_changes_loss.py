"""SPL001: a sound, a broken and a refusing specimen."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.micro_batch_split_changes_loss import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob advantage mask"
MORE: dict[str, Any] = {"claims": {"denominator": "given"}, "follows": frozenset({"micro_batches"})}


def _total(batch: Batch) -> Tensor:
    return -torch.where(batch.mask, batch.logprob * batch.advantage, 0.0).sum()


def _parts(batch: Batch, count: int) -> list[Batch]:
    return [take_rows(batch, index) for index in torch.arange(batch.rows).chunk(count)]


def _by_all_tokens(batch: Batch, micro_batches: int) -> Tensor:
    tokens = batch.mask.sum().clamp(min=1)
    return torch.stack([_total(part) / tokens for part in _parts(batch, micro_batches)]).sum()


def _by_own_tokens(batch: Batch, micro_batches: int) -> Tensor:
    parts = _parts(batch, micro_batches)
    return torch.stack([_total(p) / p.mask.sum().clamp(min=1) / len(parts) for p in parts]).sum()


def test_sound() -> None:
    """Divided by all tokens, the cut does not matter."""
    judgement = judged(LAW, specimen(_by_all_tokens, reads=READS, stage="policy-loss", outputs=LOSS, **MORE))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Divided by the tokens of each part, it does: two rows of unequal length show it."""
    found = judged(LAW, specimen(_by_own_tokens, reads=READS, stage="policy-loss", outputs=LOSS, **MORE)).found
    assert found is not None
    assert found.case.batch.rows == 2
    assert re.fullmatch(
        r"the denominators count the whole mini-batch, "
        r"yet splitting 2 rows into 2 micro-batches moves gradient of logprob at row 1, token 0 from -0\.3333 to -0\.5",
        found.expectation.sentence(),
    )


def _sum_of_means(batch: Batch, micro_batches: int) -> Tensor:
    return torch.stack([_total(p) / p.mask.sum().clamp(min=1) for p in _parts(batch, micro_batches)]).sum()


@pytest.mark.parametrize(("compute", "found"), [(_by_own_tokens, False), (_sum_of_means, True)])
def test_mean_of_equal_parts(compute: Any, found: bool) -> None:
    """Parts with equally many trained tokens share a mean, which is not multiplied by their number."""
    more = {**MORE, "claims": {"aggregation": "token-mean"}}
    judgement = judged(LAW, specimen(compute, reads=READS, stage="policy-loss", outputs=LOSS, **more))
    assert judgement.tried > 0
    assert (judgement.found is not None) is found


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "the boundary does not claim that denominators are arguments"),
        ({"claims": MORE["claims"]}, "the adapter cannot cut the rows into micro-batches"),
    ],
)
def test_not_applicable(more: dict[str, Any], reason: str) -> None:
    """Without the claim the denominators are the part's own; without a cut nothing is compared."""
    judgement = judged(LAW, specimen(_by_own_tokens, reads=READS, stage="policy-loss", outputs=LOSS, **more))
    assert (judgement.tried, judgement.reason) == (0, reason)
