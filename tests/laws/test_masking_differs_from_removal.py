"""MSK006: a sound, a broken and a refusing specimen."""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import EXCLUDED, Batch, with_columns
from rl_sentinel.laws.masking_differs_from_removal import LAW
from specimens import judged, specimen


def _over_live(batch: Batch) -> Tensor:
    mean = (batch.reward * batch.live).sum() / batch.live.sum().clamp(min=1)
    return (batch.reward - mean).unsqueeze(1) * batch.mask


def _over_sampled(batch: Batch) -> Tensor:
    mean = (batch.reward * batch.live).sum() / batch.rows
    return (batch.reward - mean).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A mean over live rows is the mean of the batch without the dead one."""
    judgement = judged(LAW, specimen(_over_live, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A zero that still counts is found, with one live and one dead row."""
    found = judged(LAW, specimen(_over_sampled, reads="reward mask")).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [False]]
    assert found.expectation.sentence() == (
        "row 1 is not trained, yet keeping it in the batch moves advantage at row 0, token 0 from 0 to 0.5"
    )
    assert found.distance == 0.5  # reward 1 less a mean of 1, or less a mean of one half
    assert LAW.level(found.case) == "contested"
    padding = with_columns(found.case.batch, excluded=torch.tensor([0, EXCLUDED["padding"]]))
    assert LAW.level(replace(found.case, batch=padding)) == "fault"
    own = replace(specimen(_over_sampled, reads="reward mask"), own=True)
    assert LAW.level_at(own, found.case) == "hazard"


def test_not_applicable() -> None:
    """What reads no mask has no dead rows."""
    judgement = judged(LAW, specimen(_over_live, reads="reward"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary reads no mask")
