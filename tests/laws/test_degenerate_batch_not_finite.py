"""DEG001: a sound, a broken and a refusing specimen."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.degenerate_batch_not_finite import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "reward", "loss")}


def _guarded(batch: Batch) -> Tensor:
    mean = (batch.reward * batch.live).sum() / batch.live.sum().clamp(min=1)
    return (batch.reward - mean).unsqueeze(1) * batch.mask


def _over_live(batch: Batch) -> Tensor:
    return (batch.reward - batch.reward[batch.live].mean()).unsqueeze(1) * batch.mask


def _lone(batch: Batch) -> Tensor:
    live = torch.bincount(batch.group, batch.live.float())[batch.group]
    return (batch.reward / (live - 1).abs()).unsqueeze(1) * batch.mask


def _zero_variance(batch: Batch) -> Tensor:
    gap = batch.reward - batch.reward.mean()
    return (gap / gap.square().sum().sqrt()).unsqueeze(1) * batch.mask if batch.rows > 1 else _guarded(batch)


def _over_tokens(batch: Batch) -> Tensor:
    return batch.reward.unsqueeze(1) * batch.mask / batch.mask.sum(1, keepdim=True)


def _alone(batch: Batch) -> Tensor:
    return (batch.reward / (batch.rows - 1)).unsqueeze(1) * batch.mask


def test_sound() -> None:
    """A guarded mean stays finite on nothing at all."""
    judgement = judged(LAW, specimen(_guarded, reads="reward mask"))
    assert judgement.found is None
    assert judgement.tried > 0


@pytest.mark.parametrize(
    ("compute", "kind", "rows"),
    [
        (_over_live, "no trained token", 1),
        (_alone, "one row", 1),
        (_lone, "a lone response", 2),
        (_zero_variance, "equal rewards in a group", 2),
    ],
)
def test_broken(compute: object, kind: str, rows: int) -> None:
    """Each kind is found by its own name, on its smallest batch."""
    assert callable(compute)
    found = judged(LAW, specimen(compute, reads="reward group mask")).found
    assert found is not None
    assert found.case.batch.rows == rows
    assert found.expectation.sentence() == f"advantage is NaN at row 0, token 0: the batch has {kind}"
    assert LAW.level(found.case) == "fault"


@pytest.mark.parametrize(
    ("compute", "level"),
    [
        (_over_live, "hazard"),
        (_alone, "hazard"),
        (_lone, "hazard"),
        (_over_tokens, "hazard"),
        (_zero_variance, "fault"),
    ],
)
def test_level_at_functions_whose_callers_are_unknown(compute: object, level: str) -> None:
    """A caller may never pass a batch that has nothing to train; equal rewards come up in every run."""
    assert callable(compute)
    boundary = replace(specimen(compute, reads="reward group mask"), own=True)
    found = judged(LAW, boundary).found
    assert found is not None
    assert LAW.level_at(boundary, found.case) == level


def test_a_fault_is_found_behind_a_hazard() -> None:
    """The first case breaks the law with a lone response, a later one with equal rewards."""

    def compute(batch: Batch) -> Tensor:
        return _lone(batch) + (_zero_variance(batch) if batch.rows == 2 else 0.0)

    boundary = specimen(compute, reads="reward group mask")
    framework, own = (judged(LAW, one).found for one in (boundary, replace(boundary, own=True)))
    assert framework is not None
    assert own is not None
    assert framework.case.draw["kind"] == "a lone response"
    assert own.case.draw["kind"] == "equal rewards in a group"


def test_gradient_is_judged() -> None:
    def loss(batch: Batch) -> Tensor:
        return torch.where(batch.live.any(), (batch.logprob * batch.mask).sum() / batch.mask.sum(), 0.0)

    found = judged(LAW, specimen(loss, reads="logprob mask", stage="policy-loss", outputs=LOSS)).found
    assert found is not None
    assert found.expectation.name == "gradient of logprob"


def test_not_applicable() -> None:
    """A refusal in words is an answer."""

    def refusing(batch: Batch) -> Tensor:
        raise ValueError(f"{batch.rows} rows are too few")

    judgement = judged(LAW, specimen(refusing, reads="reward mask"))
    assert judgement.tried == 0
    assert judgement.reason.startswith("ValueError: ")
    assert judgement.reason.endswith(" rows are too few")
