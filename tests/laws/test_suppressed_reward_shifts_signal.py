"""MSK003: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.suppressed_reward_shifts_signal import LAW
from specimens import judged, specimen

CLAIMS = {"suppresses": "unscored"}


def _before_the_mean(batch: Batch) -> Tensor:
    kept = torch.where(batch.scored, batch.reward, 0.0)
    return (kept - kept.mean()).unsqueeze(1) * batch.mask


def _after_the_mean(batch: Batch) -> Tensor:
    return torch.where(batch.scored, batch.reward - batch.reward.mean(), 0.0).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """Zeroing before the mean is legal: the zero counts, the reward does not."""
    judgement = judged(LAW, specimen(_before_the_mean, reads="reward mask scored", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Zeroing after the mean is found: the row that ended moves."""
    found = judged(LAW, specimen(_after_the_mean, reads="reward mask scored", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.scored.tolist() == [True, False]
    assert found.case.batch.length.tolist() == [1, 2]
    assert found.expectation.sentence() == (
        "row 1 is not scored, yet its reward moves advantage at row 0, token 0 from 0 to -0.5"
    )
    assert found.distance == 0.5  # one of two rewards moved by 1 moves their mean by a half
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """What claims no suppression keeps the reward."""
    judgement = judged(LAW, specimen(_after_the_mean, reads="reward mask scored"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim to suppress a reward")
