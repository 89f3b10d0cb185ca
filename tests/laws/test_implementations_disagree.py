"""PAR001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.implementations_disagree import LAW
from specimens import judged, specimen

READS = "reward group mask"


def _mean(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return same @ batch.reward / same.sum(dim=1)


def _in_a_loop(batch: Batch) -> Tensor:
    means = [batch.reward[batch.group == g].mean() for g in batch.group]
    return (batch.reward - torch.stack(means)).unsqueeze(1) * batch.mask


def _vectorized(batch: Batch) -> Tensor:
    if batch.rows > 4:
        raise ValueError("at most 4 rows")
    return (batch.reward - _mean(batch)).unsqueeze(1) * batch.mask


def _raw_when_alone(batch: Batch) -> Tensor:
    alone = torch.bincount(batch.group)[batch.group] == 1
    return torch.where(alone, batch.reward, batch.reward - _mean(batch)).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """Two ways to the same mean agree, on the cases that both answer."""
    twin = specimen(_vectorized, reads=READS, path="fast")
    judgement = judged(LAW, specimen(_in_a_loop, reads=READS, alternatives=("fast",)), twin)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Siblings that treat a lone response differently are found, with one row."""
    twin = specimen(_raw_when_alone, reads=READS, path="fast")
    found = judged(LAW, specimen(_in_a_loop, reads=READS, alternatives=("fast",)), twin).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.sentence() == (
        "advantage is 0 at row 0, token 0, expected 1: "
        "fast implements the same algorithm and returns the expected value"
    )
    assert LAW.level(found.case) == "contested"


def test_not_applicable() -> None:
    """A function without a sibling agrees with nobody."""
    judgement = judged(LAW, specimen(_in_a_loop, reads=READS))
    assert (judgement.tried, judgement.reason) == (0, "no other implementation of this algorithm is bound")
