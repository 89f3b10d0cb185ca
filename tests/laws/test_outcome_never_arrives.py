"""PLC005: a sound, a broken and a refusing specimen."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.laws.outcome_never_arrives import LAW
from specimens import judged, specimen

CLAIMS = {"credit": "outcome"}


def _standardized(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    gap = batch.reward - same @ batch.reward / same.sum(dim=1)
    deviation = (same @ gap.square() / same.sum(dim=1)).sqrt()
    return (gap / (deviation + 1e-6)).unsqueeze(1) * batch.mask


def _on_the_last_token(batch: Batch) -> Tensor:
    last = torch.arange(batch.width) == (batch.length - 1).unsqueeze(1)
    reward = (last * batch.mask * batch.reward.unsqueeze(1)).sum(dim=1, keepdim=True)
    return reward * batch.mask


def _share_of_the_mean(batch: Batch) -> Tensor:
    same = (batch.group.unsqueeze(0) == batch.group.unsqueeze(1)).float()
    mean = same @ batch.reward / same.sum(dim=1)
    return ((batch.reward - mean) / (mean + 1e-6)).unsqueeze(1) * batch.mask


@pytest.mark.parametrize("value", [_standardized, _share_of_the_mean])
def test_sound(value: Callable[[Batch], Tensor]) -> None:
    """An outcome that belongs to the row arrives, also where it is standardized in pairs, or divided by their mean."""
    judgement = judged(LAW, specimen(value, reads="reward group mask", claims=CLAIMS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """An outcome on a masked last token is lost, with a row of one trained token and a sibling."""
    found = judged(LAW, specimen(_on_the_last_token, reads="reward mask", claims=CLAIMS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True, False], [True, True]]
    assert found.expectation.sentence() == (
        "the outcome of row 0 had no effect on advantage at row 0, token 0: "
        "an outcome must reach the last trained token of its response"
    )
    assert LAW.level(found.case) == "fault"


def test_wrong_way() -> None:
    found = judged(LAW, specimen(lambda b: -_standardized(b), reads="reward group mask", claims=CLAIMS)).found
    assert found is not None
    reason = "an outcome must reach the last trained token of its response"
    moves = r"the outcome of row 0 moves advantage at row 0, token 0 from \S+ to \S+, expected a (rise|fall)"
    assert re.fullmatch(f"{moves}: {reason}", found.expectation.sentence())


def _of_trajectories(batch: Batch, *, train_last: bool) -> Tensor:
    """Outcomes of last steps, centered, on every step; or only of trajectories whose last step trains."""
    found = torch.zeros(batch.rows)
    for row in torch.nonzero(batch.last_step).flatten().tolist():
        others = batch.reward[batch.last_step & (batch.group == batch.group[row])]
        counts = not train_last or bool(batch.live[row])
        found[batch.trajectory == batch.trajectory[row]] = batch.reward[row] - others.mean() if counts else 0.0
    return found.unsqueeze(1) * batch.mask


@pytest.mark.parametrize("train_last", [False, True])
def test_steps(train_last: bool) -> None:
    boundary = specimen(
        lambda b: _of_trajectories(b, train_last=train_last),
        reads="reward group mask trajectory last_step",
        claims=CLAIMS | {"trajectories": "step-wise"},
    )
    judgement = judged(LAW, boundary)
    assert judgement.tried > 0
    assert (judgement.found is not None) == train_last
    if judgement.found is not None:
        assert judgement.found.case.batch.live.tolist() == [True, False, True]
        assert judgement.found.expectation.sentence() == (
            "the outcome of row 1 had no effect on advantage at row 0, token 0: both rows are steps of trajectory 0, "
            "and each step that is trained must get its outcome"
        )


def test_not_applicable() -> None:
    """An order statistic answers to few outcomes; a discount of zero to none."""
    judgement = judged(
        LAW, specimen(_on_the_last_token, reads="reward mask", claims=CLAIMS | {"order-statistic": "yes"})
    )
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims an order statistic")
    none = {"default": {"gamma": 0.0}}
    boundary = specimen(lambda b, gamma: gamma * _standardized(b), reads="reward mask", claims=CLAIMS, settings=none)
    assert judged(LAW, boundary).tried == 0
