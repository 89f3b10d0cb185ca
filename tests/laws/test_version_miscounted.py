"""STA001: a sound, a broken and a refusing specimen."""

from collections.abc import Callable

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.laws.version_miscounted import LAW
from specimens import judged, specimen

OUTPUTS = {"admitted": Output("", "samples", "admitted")}
SETTINGS = {"default": {"finished": 3, "max_staleness": 2}}


def _admits(count: Callable[[Batch, int, int], int]) -> Boundary:
    def compute(batch: Batch, finished: int, max_staleness: int) -> Tensor:
        return torch.tensor(float(count(batch, finished, max_staleness)))

    return specimen(compute, reads="group", stage="batch", outputs=OUTPUTS, settings=SETTINGS)


def test_sound() -> None:
    judgement = judged(LAW, _admits(lambda batch, finished, oldest: (finished + oldest + 1) * batch.rows))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    found = judged(LAW, _admits(lambda batch, finished, oldest: (finished + oldest) * batch.rows)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "admitted is 5, expected 6: 3 updates are finished and samples may be 2 updates old"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    judgement = judged(LAW, specimen(lambda batch: torch.ones(batch.rows), reads="group", stage="batch"))
    assert judgement.reason == "the boundary does not report how many samples it admits"
