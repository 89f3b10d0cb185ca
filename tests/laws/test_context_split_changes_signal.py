"""SPL004: a sound, a broken and a refusing specimen."""

from typing import Any

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.context_split_changes_signal import LAW
from specimens import judged, specimen

READS = "advantage mask"
MORE: dict[str, Any] = {"stage": "parallel", "follows": frozenset({"context"})}


def _halves(batch: Batch, context: int) -> list[Tensor]:
    """Which tokens each rank holds: the first half of the positions, and the second."""
    positions = torch.arange(batch.width).expand_as(batch.mask)
    return [batch.mask & (positions * context // batch.width == rank) for rank in range(context)]


def _mean(advantage: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, advantage, 0.0).sum() / mask.sum().clamp(min=1)


def _centered_by_all(batch: Batch, context: int) -> Tensor:
    return torch.where(batch.mask, batch.advantage - _mean(batch.advantage, batch.mask), 0.0)


def _centered_by_own(batch: Batch, context: int) -> Tensor:
    parts = [torch.where(m, batch.advantage - _mean(batch.advantage, m), 0.0) for m in _halves(batch, context)]
    return torch.stack(parts).sum(0)


def test_sound() -> None:
    """Centered on the mean of all tokens, the split does not matter."""
    judgement = judged(LAW, specimen(_centered_by_all, reads=READS, **MORE))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Centered on the mean of each rank's tokens, it does: one row of two tokens shows it."""
    found = judged(LAW, specimen(_centered_by_own, reads=READS, **MORE)).found
    assert found is not None
    assert tuple(found.case.batch.mask.shape) == (1, 2)
    assert found.expectation.sentence().startswith(
        "the ranks together hold the same tokens, yet splitting each sequence over 2 ranks moves advantage at row 0, "
    )


def test_not_applicable() -> None:
    """Where the adapter has no ranks for a sequence, nothing is compared."""
    judgement = judged(LAW, specimen(_centered_by_own, reads=READS, stage="parallel"))
    assert (judgement.tried, judgement.reason) == (0, "the adapter cannot split a sequence over ranks")
