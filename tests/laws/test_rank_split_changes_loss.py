"""SPL002: a sound, a broken and a refusing specimen."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.rank_split_changes_loss import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob advantage mask"
MORE: dict[str, Any] = {"claims": {"denominator": "given"}, "follows": frozenset({"ranks"})}


def _totals(batch: Batch, ranks: int) -> tuple[Tensor, Tensor]:
    """Sum of the token losses, and trained tokens, of each rank."""
    parts = [take_rows(batch, index) for index in torch.arange(batch.rows).chunk(ranks)]
    total = torch.stack([-torch.where(p.mask, p.logprob * p.advantage, 0.0).sum() for p in parts])
    return total, torch.stack([p.mask.sum() for p in parts]).clamp(min=1)


def _scaled_back(batch: Batch, ranks: int) -> Tensor:
    """Each rank divides by the tokens of all and multiplies by their number, since ranks are averaged."""
    total, _ = _totals(batch, ranks)
    return (total / batch.mask.sum().clamp(min=1) * len(total)).mean()


def _by_own_tokens(batch: Batch, ranks: int) -> Tensor:
    total, tokens = _totals(batch, ranks)
    return (total / tokens).mean()


def test_sound() -> None:
    """Divided by the tokens of all ranks, the number of ranks does not matter."""
    judgement = judged(LAW, specimen(_scaled_back, reads=READS, stage="policy-loss", outputs=LOSS, **MORE))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Divided by the tokens of each rank, it does: two rows of unequal length show it."""
    found = judged(LAW, specimen(_by_own_tokens, reads=READS, stage="policy-loss", outputs=LOSS, **MORE)).found
    assert found is not None
    assert found.case.batch.rows == 2
    assert found.expectation.sentence().startswith(
        "the denominators count all ranks, so the split must have no effect, "
        "yet splitting 2 rows into 2 ranks moves gradient of logprob at row "
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "the boundary does not claim that denominators are arguments"),
        ({"claims": MORE["claims"]}, "the adapter cannot spread the rows over ranks"),
    ],
)
def test_not_applicable(more: dict[str, Any], reason: str) -> None:
    """Without the claim the denominators are the rank's own; without ranks nothing is compared."""
    judgement = judged(LAW, specimen(_by_own_tokens, reads=READS, stage="policy-loss", outputs=LOSS, **more))
    assert (judgement.tried, judgement.reason) == (0, reason)
