"""MSK005: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.dead_row_in_declared_mean import LAW
from specimens import judged, specimen

OVER_LIVE = {"loss": Output("", "reward", "loss", over="live")}
UNDECLARED = {"loss": Output("", "reward", "loss")}


def _over_live(batch: Batch) -> Tensor:
    return (batch.advantage * batch.mask).sum() / batch.live.sum().clamp(min=1)


def _over_sampled(batch: Batch) -> Tensor:
    return (batch.advantage * batch.mask).sum() / batch.rows


def test_sound() -> None:
    """A mean over live rows does not count the dead."""
    boundary = specimen(_over_live, reads="advantage mask", stage="aggregate", outputs=OVER_LIVE)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A mean over all rows that is declared over live ones is found."""
    boundary = specimen(_over_sampled, reads="advantage mask", stage="aggregate", outputs=OVER_LIVE)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [False]]
    assert found.expectation.sentence() == "row 1 is not trained, yet keeping it in the batch moves loss from 1 to 0.5"
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A mean that declares no population may count every sampled row."""
    boundary = specimen(_over_sampled, reads="advantage mask", stage="aggregate", outputs=UNDECLARED)
    judgement = judged(LAW, boundary)
    assert (judgement.tried, judgement.reason) == (0, "the boundary declares no number over live rows")
