"""RAI001: a sound, a broken and a refusing specimen."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary
from rl_sentinel.laws.valid_input_raises import LAW
from specimens import judged, specimen

#: The specimens of this file as the target.
HERE = Target(Path(__file__).parent)


def _sound(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask


def _empty_sequence(batch: Batch) -> Tensor:
    longest: int = max(n for n in batch.mask.sum(1).tolist() if n)
    return batch.reward.unsqueeze(1) * batch.mask / longest


def _index(batch: Batch) -> Tensor:
    second: float = batch.reward.tolist()[1]
    return (batch.reward - second).unsqueeze(1) * batch.mask


def _in_torch(batch: Batch) -> Tensor:
    best = batch.reward[batch.live].max()
    return (batch.reward - best).unsqueeze(1) * batch.mask


def _refuses(batch: Batch) -> Tensor:
    if not batch.live.any():
        raise RuntimeError("no token is trained")
    return _sound(batch)


def _asserts(batch: Batch) -> Tensor:
    assert batch.live.all(), "a row is not trained"
    return _sound(batch)


def test_sound() -> None:
    judgement = judged(LAW, specimen(_sound, reads="reward mask"), gate=HERE)
    assert judgement.found is None
    assert judgement.tried > 0


@pytest.mark.parametrize(
    ("compute", "message", "line"),
    [
        (_empty_sequence, "ValueError: max() arg is an empty sequence", 24),
        (_index, "IndexError: list index out of range", 29),
    ],
)
def test_broken(compute: object, message: str, line: int) -> None:
    """An exception that no line raises on purpose, with its own line."""
    assert callable(compute)
    found = judged(LAW, specimen(compute, reads="reward mask"), gate=HERE).found
    assert found is not None
    assert found.case.batch.rows == 1
    assert found.expectation.sentence() == (
        f"raises {message} (test_valid_input_raises.py:{line}): "
        "a batch that callers can create must give a result or a clear error"
    )
    assert LAW.level(found.case) == "fault"


def test_exception_of_torch() -> None:
    """The line of the target is reported, not the one inside torch."""
    found = judged(LAW, specimen(_in_torch, reads="reward mask"), gate=HERE).found
    assert found is not None
    assert found.expectation.sentence().startswith("raises RuntimeError: max(): Expected reduction dim")
    assert " (test_valid_input_raises.py:34): " in found.expectation.sentence()


def test_refusal_in_words() -> None:
    """A raise or an assert of the target is its answer."""
    for compute in (_refuses, _asserts):
        judgement = judged(LAW, specimen(compute, reads="reward mask"), gate=HERE)
        assert judgement.found is None


@pytest.mark.slow
def test_not_answered_at_all() -> None:
    """A boundary that answers no batch is called wrongly, which is no finding."""

    def always(batch: Batch) -> Tensor:
        return torch.zeros(batch.rows)[batch.rows :].max()

    with pytest.raises(Exception, match="Expected reduction dim"):
        judged(LAW, specimen(always, reads="reward mask"), gate=HERE)


def test_not_applicable() -> None:
    assert (
        LAW.applies(Boundary(path="nothing", stage="advantage", steps=(), outputs={})) == "the boundary has no outputs"
    )
