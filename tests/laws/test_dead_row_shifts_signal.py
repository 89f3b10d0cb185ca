"""MSK001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.dead_row_shifts_signal import LAW
from specimens import judged, specimen


def _centered(batch: Batch) -> Tensor:
    live = batch.live
    mean = batch.reward[live].mean() if live.any() else torch.tensor(0.0)
    return (batch.reward - mean).unsqueeze(1) * batch.mask


def _centered_on_all(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward.mean()).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A mean over live rows is left alone by a dead one."""
    judgement = judged(LAW, specimen(_centered, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A mean over all rows is found, with two rows of one token."""
    found = judged(LAW, specimen(_centered_on_all, reads="reward mask")).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [False]]
    assert found.expectation.sentence() == (
        "row 1 is not trained, yet its reward moves advantage at row 0, token 0 from 0 to -0.5"
    )
    assert found.distance == 0.5  # one of two rewards moved by 1 moves their mean by a half
    assert LAW.level(found.case) == "contested"


def test_not_applicable() -> None:
    """What reads no mask has no dead rows."""
    judgement = judged(LAW, specimen(_centered, reads="reward"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads no mask")


def test_the_intention_names_what_the_row_entered() -> None:
    told = [
        LAW.intended_at(specimen(_centered, reads="reward mask", claims=claims))
        for claims in ({"scope": "group"}, {"scope": "batch"}, {})
    ]
    assert ["baseline" in words for words in told] == [True, False, False]
    assert ["of the batch" in words for words in told] == [False, True, False]
    loss = specimen(_centered, reads="reward mask", stage="aggregate", claims={"scope": "group"})
    assert LAW.intended_at(loss) == told[2]
