"""DEG002: a sound, a broken and a refusing specimen."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.constant_group_amplified import LAW
from specimens import judged, specimen

CENTERED = {"baseline": "relative", "standardized": "no"}
STANDARDIZED = {"baseline": "relative", "standardized": "yes"}


def _gap(batch: Batch) -> Tensor:
    return batch.reward - batch.reward.sum() / batch.rows


def _centered(batch: Batch) -> Tensor:
    return _gap(batch).unsqueeze(1) * batch.mask


def _standardized(batch: Batch) -> Tensor:
    gap = _gap(batch)
    return (gap / (gap.square().mean().sqrt() + 1e-12)).unsqueeze(1) * batch.mask


def _exact(batch: Batch) -> Tensor:
    gap = torch.where(batch.reward == batch.reward[0], 0.0, _gap(batch))
    return (gap / (gap.square().mean().sqrt() + 1e-12)).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A centered reward may round, a standardized one may not be made of rounding."""
    for compute, claims in ((_centered, CENTERED), (_exact, STANDARDIZED)):
        judgement = judged(LAW, specimen(compute, reads="reward mask", claims=claims))
        assert judgement.found is None
        assert judgement.tried > 0


def test_broken() -> None:
    """Rounding divided by its own deviation is found."""
    found = judged(LAW, specimen(_standardized, reads="reward mask", claims=STANDARDIZED)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]] * 3
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 3 rows have the reward 0\.9", found.expectation.sentence()
    )
    assert found.distance > 0.9  # what was rounding is now one deviation
    assert found.allowed == 1e-3
    assert LAW.level(found.case) == "fault"


def test_large_groups_are_found() -> None:
    def standardized(batch: Batch) -> Tensor:
        rounds = batch.reward - batch.reward.mean()
        gap = rounds if batch.rows > 7 else torch.zeros_like(rounds)
        return (gap / (gap.square().mean().sqrt() + 1e-6)).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(standardized, reads="reward mask", claims=STANDARDIZED)).found
    assert found is not None
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 8 rows have the reward 0\.1", found.expectation.sentence()
    )
    assert found.case.batch.mask.tolist() == [[True]] * 8


def test_small_groups_are_found() -> None:
    def standardized(batch: Batch) -> Tensor:
        gap = batch.reward - batch.reward.mean()
        return (gap / (gap.square().mean().sqrt() + 1e-6)).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(standardized, reads="reward mask", claims=STANDARDIZED)).found
    assert found is not None
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 3 rows have the reward 0\.9", found.expectation.sentence()
    )
    assert found.case.batch.mask.tolist() == [[True]] * 3


def test_half_a_reward_is_found() -> None:
    def half(batch: Batch) -> Tensor:
        return (batch.reward - batch.reward.mean() / 2).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(half, reads="reward mask", claims=CENTERED)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [True]]


def test_not_applicable() -> None:
    """An absolute reward is no comparison."""
    judgement = judged(LAW, specimen(_standardized, reads="reward mask"))
    assert (judgement.tried, judgement.reason) == (0, "the boundary does not claim a relative baseline")
