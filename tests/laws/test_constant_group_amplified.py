"""DEG002: a sound, a broken and a refusing specimen."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.constant_group_amplified import LAW
from specimens import judged, specimen

CENTRED = {"baseline": "relative", "standardised": "no"}
STANDARDISED = {"baseline": "relative", "standardised": "yes"}


def _gap(batch: Batch) -> Tensor:
    return batch.reward - batch.reward.sum() / batch.rows


def _centred(batch: Batch) -> Tensor:
    return _gap(batch).unsqueeze(1) * batch.mask


def _standardised(batch: Batch) -> Tensor:
    gap = _gap(batch)
    return (gap / (gap.square().mean().sqrt() + 1e-12)).unsqueeze(1) * batch.mask


def _exact(batch: Batch) -> Tensor:
    gap = torch.where(batch.reward == batch.reward[0], 0.0, _gap(batch))
    return (gap / (gap.square().mean().sqrt() + 1e-12)).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A centred reward may round, a standardised one may not be made of rounding."""
    for compute, claims in ((_centred, CENTRED), (_exact, STANDARDISED)):
        judgement = judged(LAW, specimen(compute, reads="reward mask", claims=claims))
        assert judgement.found is None
        assert judgement.tried > 0


def test_broken() -> None:
    """Rounding divided by its own deviation is found."""
    found = judged(LAW, specimen(_standardised, reads="reward mask", claims=STANDARDISED)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]] * 3
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 3 rows have the reward 0\.9", found.expectation.sentence()
    )
    assert found.distance > 0.9  # what was rounding is now one deviation
    assert found.allowed == 1e-3
    assert LAW.level(found.case) == "fault"


def test_large_groups_are_found() -> None:
    def standardised(batch: Batch) -> Tensor:
        rounds = batch.reward - batch.reward.mean()
        gap = rounds if batch.rows > 7 else torch.zeros_like(rounds)
        return (gap / (gap.square().mean().sqrt() + 1e-6)).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(standardised, reads="reward mask", claims=STANDARDISED)).found
    assert found is not None
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 8 rows have the reward 0\.1", found.expectation.sentence()
    )
    assert found.case.batch.mask.tolist() == [[True]] * 8


def test_small_groups_are_found() -> None:
    def standardised(batch: Batch) -> Tensor:
        gap = batch.reward - batch.reward.mean()
        return (gap / (gap.square().mean().sqrt() + 1e-6)).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(standardised, reads="reward mask", claims=STANDARDISED)).found
    assert found is not None
    assert re.fullmatch(
        r"advantage is \S+ at row 0, token 0, expected 0: all 3 rows have the reward 0\.9", found.expectation.sentence()
    )
    assert found.case.batch.mask.tolist() == [[True]] * 3


def test_half_a_reward_is_found() -> None:
    def half(batch: Batch) -> Tensor:
        return (batch.reward - batch.reward.mean() / 2).unsqueeze(1) * batch.mask

    found = judged(LAW, specimen(half, reads="reward mask", claims=CENTRED)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True], [True]]


def test_not_applicable() -> None:
    """An absolute reward is no comparison."""
    judgement = judged(LAW, specimen(_standardised, reads="reward mask"))
    assert (judgement.tried, judgement.reason) == (0, "it does not claim a relative baseline")
