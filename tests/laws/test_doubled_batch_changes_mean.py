"""SPL003: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.doubled_batch_changes_mean import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
MEAN = {"mean": "yes"}


def _mean(batch: Batch) -> Tensor:
    return (batch.advantage * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def _by_fixed_rows(batch: Batch) -> Tensor:
    return (batch.advantage * batch.mask).sum() / 4


def test_sound() -> None:
    boundary = specimen(_mean, reads="advantage mask", stage="aggregate", outputs=LOSS, claims=MEAN)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_sum_is_no_mean() -> None:
    total = {"total": Output("", "", "reward.sum", over="live")}
    judgement = judged(LAW, specimen(_by_fixed_rows, reads="advantage mask", stage="metric", outputs=total))
    assert judgement.tried == 0


def test_broken() -> None:
    """A sum by a fixed number doubles."""
    boundary = specimen(_by_fixed_rows, reads="advantage mask", stage="aggregate", outputs=LOSS, claims=MEAN)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.sentence() == (
        "repeating a batch must not change its mean, yet repeating its only row moves loss from 0.25 to 0.5"
    )


def test_not_applicable() -> None:
    """What claims no mean is not judged."""
    judgement = judged(LAW, specimen(_mean, reads="advantage mask", stage="aggregate", outputs=LOSS))
    assert (judgement.tried, judgement.reason) == (
        0,
        "the boundary claims no mean, and no number declares its population",
    )
