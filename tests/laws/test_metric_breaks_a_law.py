"""MET003: a sound, two broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.metric_breaks_a_law import LAW
from specimens import judged, specimen

LIVE = {"mean": Output("", "", "reward.mean", over="live")}


def _live_mean(batch: Batch) -> Tensor:
    return batch.reward[batch.live].sum() / batch.live.sum().clamp(min=1)


def _mean(batch: Batch) -> Tensor:
    return batch.reward.mean()


def _wide_mean(batch: Batch) -> Tensor:
    return (batch.entropy * batch.mask).mean()


def test_sound() -> None:
    """A mean over live rows is left alone by dead ones and by padding."""
    judgement = judged(LAW, specimen(_live_mean, reads="reward mask", stage="metric", outputs=LIVE))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken_by_dead_row() -> None:
    found = judged(LAW, specimen(_mean, reads="reward mask", stage="metric", outputs=LIVE)).found
    assert found is not None
    assert found.expectation.sentence() == "row 1 is not trained, yet its reward moves mean from 0 to 0.5"
    assert found.distance == 0.5


def test_broken_by_padding() -> None:
    found = judged(LAW, specimen(_wide_mean, reads="entropy mask", stage="metric", outputs=LIVE)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "padding must have no influence, yet adding 2 positions of padding moves mean from 1 to 0.3333"
    )
    assert found.case.batch.mask.tolist() == [[True]]


def test_not_applicable() -> None:
    """A number that declares no population is not judged."""
    undeclared = {"mean": Output("", "", "reward.mean")}
    judgement = judged(LAW, specimen(_mean, reads="reward mask", stage="metric", outputs=undeclared))
    assert (judgement.tried, judgement.reason) == (0, "the boundary logs no number that is declared over live rows")
