"""PUR002: a sound, a broken and a refusing specimen."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.same_call_differs import LAW
from specimens import judged, specimen


def _seeded(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask + torch.rand(batch.mask.shape)


class _Counting:
    """A baseline that remembers how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: Batch) -> Tensor:
        self.calls += 1
        return (batch.reward - self.calls).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """What is drawn from a seeded generator is drawn again."""
    judgement = judged(LAW, specimen(_seeded, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A counter inside is found, with one token."""
    found = judged(LAW, specimen(_Counting(), reads="reward mask")).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert re.fullmatch(
        r"equal calls must give equal results, "
        r"yet making the same call again moves advantage at row 0, token 0 from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert found.distance == 1.0
    assert found.allowed == 0.0
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A state that is claimed is no surprise."""
    judgement = judged(LAW, specimen(_Counting(), reads="reward mask", claims={"state": "yes"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims to keep state between calls")
