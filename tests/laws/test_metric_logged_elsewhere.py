"""MET006: a sound, a broken and a refusing specimen."""

from functools import partial

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.metric_logged_elsewhere import LAW
from specimens import judged, specimen

make = partial(specimen, reads="reward", stage="batch", outputs={"elsewhere": Output("", "count", "logged_elsewhere")})


def _numbers(batch: Batch, mode: str) -> Tensor:
    """How many numbers an evaluation puts among those of training."""
    numbers: dict[str, list[float]] = {"train": [], "eval": []}
    numbers[mode].append(float(batch.reward.mean()))
    return torch.tensor(float(len(numbers["train"])))


def test_sound() -> None:
    """An evaluation logs under its own name."""
    judgement = judged(LAW, make(partial(_numbers, mode="eval")))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """An evaluation logs as if it trained."""
    found = judged(LAW, make(partial(_numbers, mode="train"))).found
    assert found is not None
    wanted = "elsewhere is 1, expected 0: each number must be logged under its mode and at its step"
    assert found.expectation.sentence() == wanted
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A boundary without the output says nothing of where it logs."""
    plain = specimen(partial(_numbers, mode="eval"), reads="reward", stage="batch", outputs={"elsewhere": Output("")})
    judgement = judged(LAW, plain)
    assert judgement.tried == 0
    assert judgement.reason == "the boundary does not report where numbers are logged"
