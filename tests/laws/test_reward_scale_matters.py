"""SHF002: a sound, a broken and a refusing specimen."""

import re

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.reward_scale_matters import LAW
from specimens import judged, specimen

CLAIMS = {"standardized": "yes", "grouping": "id"}


def _gap_and_variance(batch: Batch) -> tuple[Tensor, Tensor]:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    gap = batch.reward - same @ batch.reward / same.sum(dim=1)
    return gap, same @ gap.square() / same.sum(dim=1)


def _by_deviation(batch: Batch) -> Tensor:
    gap, variance = _gap_and_variance(batch)
    return (gap / (variance.sqrt() + 1e-4)).unsqueeze(1) * batch.mask


def _by_variance(batch: Batch) -> Tensor:
    gap, variance = _gap_and_variance(batch)
    return (gap / (variance + 1e-4)).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A deviation has the reward's unit, and 1e-4 beside it is forgiven."""
    judgement = judged(LAW, specimen(_by_deviation, reads="reward group mask", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A variance does not, which is found with two rows of one token."""
    found = judged(LAW, specimen(_by_variance, reads="reward group mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [True]]
    assert re.fullmatch(
        r"rewards are claimed to be standardized, "
        r"yet multiplying all rewards by 2 moves advantage at row 0, token 0 from -?\S+ to -?\S+",
        found.expectation.sentence(),
    )
    assert LAW.level(found.case) == "contested"


def test_not_applicable() -> None:
    """Without the claim the unit of the reward counts; a KL term has a unit of its own."""
    judgement = judged(LAW, specimen(_by_variance, reads="reward group mask"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim to standardize rewards")
    judgement = judged(LAW, specimen(_by_variance, reads="reward ref_logprob", claims=CLAIMS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary's reward may hold a KL term")
