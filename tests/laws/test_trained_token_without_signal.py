"""PLC001: a sound, two broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.expectations import Moves
from rl_sentinel.laws.trained_token_without_signal import LAW
from specimens import judged, specimen

CLAIMS = {"credit": "outcome", "trajectories": "step-wise"}
READS = "reward mask trajectory last_step"


def _last_rows(batch: Batch) -> Tensor:
    same = batch.trajectory.unsqueeze(0) == batch.trajectory.unsqueeze(1)
    return (same & batch.last_step).int().argmax(dim=1)


def _per_trajectory(batch: Batch) -> Tensor:
    return batch.reward[_last_rows(batch)].unsqueeze(1) * batch.mask


def _cut_to_last_step(batch: Batch) -> Tensor:
    last = batch.reward.unsqueeze(1) * batch.mask
    return last[_last_rows(batch)] * batch.mask


def _against_itself(batch: Batch) -> Tensor:
    way = 1 - 2 * (torch.arange(batch.width) % 2)
    return batch.reward[_last_rows(batch)].unsqueeze(1) * way * batch.mask


def test_sound() -> None:
    """One number per trajectory reaches every step's tokens."""
    judgement = judged(LAW, specimen(_per_trajectory, reads=READS, claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """An earlier step that is longer than the last keeps tokens at zero: two tokens and one."""
    found = judged(LAW, specimen(_cut_to_last_step, reads=READS, claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True, True], [True, False]]
    assert found.expectation.sentence() == (
        "the outcome of trajectory 0 had no effect on advantage at row 0, token 1: "
        "all trained tokens of a trajectory must follow its outcome"
    )
    assert isinstance(found.expectation, Moves)
    assert found.expectation.moved.tolist() == [[True, False], [True, False]]
    assert LAW.level(found.case) == "fault"


def test_opposite_ways_are_found() -> None:
    found = judged(LAW, specimen(_against_itself, reads=READS, claims={"credit": "outcome"})).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True, True]]


def test_not_applicable() -> None:
    """Credit over time may stop anywhere."""
    judgement = judged(LAW, specimen(_cut_to_last_step, reads=READS, claims={"credit": "temporal"}))
    reason = "the boundary does not claim that the outcome credits the whole response"
    assert (judgement.tried, judgement.reason) == (0, reason)
