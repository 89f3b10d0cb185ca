"""PRM001: a sound, a broken and a refusing specimen."""

import re

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.row_order_matters import LAW
from specimens import judged, specimen


def _against_the_mean(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward.mean()).unsqueeze(1) * batch.mask


def _against_the_first(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward[0]).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A mean does not know the order."""
    judgement = judged(LAW, specimen(_against_the_mean, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """The first row as baseline is found, with two rows of one token."""
    found = judged(LAW, specimen(_against_the_first, reads="reward mask")).found
    assert found is not None
    assert found.case.batch.rows == 2
    assert found.case.batch.width == 1
    assert re.fullmatch(
        r"the order of rows must have no influence, "
        r"yet reversing all rows moves advantage at row 0, token 0 from \S+ to \S+",
        found.expectation.sentence(),
    )
    assert found.distance == 1.0  # rewards 1 and 0: the first as baseline, then the other
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A boundary that draws rows at random may say so."""
    judgement = judged(LAW, specimen(_against_the_first, reads="reward mask", claims={"row-order": "yes"}))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims that the order of rows counts")
