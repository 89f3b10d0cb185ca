"""DAT002: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.sample_lost_or_repeated import LAW
from specimens import judged, specimen

OUTPUTS = {"drawn": Output("B", "samples", "uses")}


def _each_once(batch: Batch) -> Tensor:
    return torch.ones(batch.rows)


def _pairs_alone(batch: Batch) -> Tensor:
    """The last one of an odd number is never drawn."""
    return (torch.arange(batch.rows) < batch.rows // 2 * 2).float()


def test_sound() -> None:
    judgement = judged(LAW, specimen(_each_once, reads="group", stage="batch", outputs=OUTPUTS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    found = judged(LAW, specimen(_pairs_alone, reads="group", stage="batch", outputs=OUTPUTS)).found
    assert found is not None
    assert found.case.batch.rows % 2 == 1
    assert (
        found.expectation.sentence() == "drawn is 0 at row 2, expected 1: each sample must be used as often as declared"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    judgement = judged(LAW, specimen(_each_once, reads="group", stage="advantage"))
    assert judgement.reason == "the boundary does not report how often each sample is used"
