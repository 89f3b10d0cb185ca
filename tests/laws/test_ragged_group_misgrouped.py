"""GRP003: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.ragged_group_misgrouped import LAW
from specimens import judged, specimen

READS = "reward group mask"
CLAIMS = {"scope": "group", "grouping": "id"}


def _by_id(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return (batch.reward - same @ batch.reward / same.sum(dim=1)).unsqueeze(1) * batch.mask


def _by_position(batch: Batch) -> Tensor:
    """Groups of as many rows as the first label has; what is left over is a group of its own."""
    size = int((batch.group == batch.group[0]).sum())
    parts = [part - part.mean() for part in torch.split(batch.reward, size)]
    return torch.cat(parts).unsqueeze(1) * batch.mask


def _refuses_ragged(batch: Batch) -> Tensor:
    sizes = {int((batch.group == label).sum()) for label in batch.group.tolist()}
    if len(sizes) > 1:
        raise ValueError("groups have unequal sizes")
    return _by_position(batch)


def test_sound() -> None:
    """Groups found by id do not depend on the sizes of others."""
    judgement = judged(LAW, specimen(_by_id, reads=READS, claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Groups found by position are found with as few rows as can show it."""
    found = judged(LAW, specimen(_by_position, reads=READS, claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.rows <= 4
    assert "belongs to another group, yet removing row" in found.expectation.sentence()
    assert LAW.level(found.case) == "fault"


def test_refusing() -> None:
    """A boundary that refuses groups of unequal sizes in words obeys the law."""
    assert judged(LAW, specimen(_refuses_ragged, reads=READS, claims=CLAIMS)).found is None


def test_not_applicable() -> None:
    """Statistics over the batch move with any row; without labels there are no groups."""
    judgement = judged(LAW, specimen(_by_id, reads=READS, claims={"scope": "batch"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary's claimed scope is not the group")
    judgement = judged(LAW, specimen(_by_id, reads="reward mask", claims={"scope": "group"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads no group")
