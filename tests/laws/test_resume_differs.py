"""RES001: a sound, a broken and a refusing specimen."""

import random

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.laws.resume_differs import LAW
from specimens import judged, specimen

OUTPUTS = {
    "next": Output("B", "", "uninterrupted.order"),
    "next after a restart": Output("B", "", "resumed.order"),
}


def _order(rows: int, epoch: int) -> list[float]:
    return [float(row) for row in random.Random(epoch).sample(range(rows), rows)]


def _sampler(restored_epoch: int) -> Boundary:
    def compute(batch: Batch) -> dict[str, Tensor]:
        orders = [_order(batch.rows, epoch) for epoch in (1, restored_epoch)]
        return {name: torch.tensor(order) for name, order in zip(OUTPUTS, orders, strict=True)}

    return specimen(compute, reads="group", stage="batch", outputs=OUTPUTS)


def test_sound() -> None:
    judgement = judged(LAW, _sampler(1))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A shuffle that starts again shows on two samples or more."""
    found = judged(LAW, _sampler(0)).found
    assert found is not None
    assert found.case.batch.rows > 1
    sentence = found.expectation.sentence()
    first, other = (int(_order(found.case.batch.rows, epoch)[0]) for epoch in (1, 0))
    assert sentence == f"next after a restart is {other} at row 0, but {first} in the same run without a restart"
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """One of the two alone says nothing."""
    alone = {"next": OUTPUTS["next"]}
    judgement = judged(LAW, specimen(lambda batch: batch.reward, reads="reward", stage="batch", outputs=alone))
    assert judgement.reason == "the boundary does not report how it continues after a restore"
