"""SHF001: a sound, a broken and a refusing specimen."""

from dataclasses import replace

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.reward_shift_matters import LAW
from specimens import judged, specimen

CLAIMS = {"baseline": "relative", "scope": "group", "grouping": "id"}


def _mean(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    return same @ batch.reward / same.sum(dim=1)


def _centered(batch: Batch) -> Tensor:
    return (batch.reward - _mean(batch)).unsqueeze(1) * batch.mask


def _clipped(batch: Batch) -> Tensor:
    return _centered(batch).clamp(-10, 10) + torch.relu(batch.reward - 2).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A mean of siblings moves with them."""
    judgement = judged(LAW, specimen(_centered, reads="reward group mask", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A bonus above a fixed reward is found, with two rows of one token."""
    found = judged(LAW, specimen(_clipped, reads="reward group mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [True]]
    assert found.expectation.sentence() == (
        "a constant added to the rewards of one group must cancel (claimed: relative baseline), "
        "yet adding 4 to the rewards of group 0 moves advantage at row 0, token 0 from 0.5 to 3.5"
    )
    assert found.distance == 3.0  # rewards 1 and 0 become 5 and 4: a bonus of 3 and 2
    assert LAW.level(found.case) == "contested"


def _from_squares(batch: Batch) -> Tensor:
    """The variance as a difference of sums, in float32 whatever the batch has."""
    reward = batch.reward.float()
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    mean, square = (same @ x / same.sum(dim=1) for x in (reward, reward.square()))
    deviation = (square - mean.square()).clamp(min=0).sqrt() + 1e-4
    return ((reward - mean) / deviation).unsqueeze(1) * batch.mask


def test_deviation_that_cancels() -> None:
    """Beside a large constant, a variance from sums of squares is rounding; a user's rewards may be small."""
    boundary = specimen(_from_squares, reads="reward group mask", claims=CLAIMS)
    found = judged(LAW, boundary).found
    assert found is not None
    assert "adding 4096 to the rewards of group 0" in found.expectation.sentence()
    assert judged(LAW, replace(boundary, own=True)).found is None


def test_not_applicable() -> None:
    """An absolute reward has a zero."""
    judgement = judged(LAW, specimen(_clipped, reads="reward group mask"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim a relative baseline")
