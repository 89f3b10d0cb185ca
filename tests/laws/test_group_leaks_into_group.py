"""GRP001: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.group_leaks_into_group import LAW
from specimens import judged, specimen

CLAIMS = {"scope": "group", "grouping": "id"}


def _within_groups(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return (batch.reward - same @ batch.reward / same.sum(dim=1)).unsqueeze(1) * batch.mask


def _within_batch(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward.mean()).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A mean per group is left alone by another group's reward."""
    judgement = judged(LAW, specimen(_within_groups, reads="reward group mask", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A mean over the batch is found where the group is claimed, with two rows of one token."""
    found = judged(LAW, specimen(_within_batch, reads="reward group mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.group.tolist() == [0, 1]
    assert found.expectation.sentence() == (
        "row 0 must influence its own group only, yet its reward moves advantage at row 1, token 0 from 0 to -0.5"
    )
    assert found.distance == 0.5  # one of two rewards moved by 1 moves their mean by a half
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """Statistics over the batch are a choice where they are claimed."""
    judgement = judged(LAW, specimen(_within_batch, reads="reward mask", claims={"scope": "batch"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no scope, or the scope batch")
