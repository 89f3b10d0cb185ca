"""WGT001: sound, broken and refusing specimens."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.laws.weight_falls_with_policy import LAW
from specimens import judged, specimen

READS = "mask old_logprob rollout_logprob"


def _weight(compute: Callable[[Batch], Tensor], axes: str = "B T", reads: str = READS) -> Boundary:
    return specimen(compute, reads=reads, stage="correct", outputs={"weight": Output(axes, "ratio", "weight")})


def _gap(batch: Batch) -> Tensor:
    return torch.where(batch.mask, batch.old_logprob - batch.rollout_logprob, 0.0)


def _normalized(batch: Batch) -> Tensor:
    weight = torch.where(batch.mask, _gap(batch).exp(), 0.0)
    return weight / (weight.sum() / batch.mask.sum())


SOUND = {
    "plain": _weight(lambda batch: _gap(batch).exp()),
    "truncated at 1": _weight(lambda batch: _gap(batch).exp().clamp(max=1)),
    "masked, narrow": _weight(lambda batch: _gap(batch).exp() * (_gap(batch).abs() < 0.001)),
    "of a row": _weight(lambda batch: _gap(batch).sum(1).exp(), "B"),
    "geometric": _weight(lambda batch: (_gap(batch).sum(1) / batch.mask.sum(1).clamp(min=1)).exp(), "B"),
    "divided by the mean": _weight(_normalized),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound(name: str) -> None:
    """Truncation, rejection, a mean per row and a division by the mean keep the direction."""
    judgement = judged(LAW, SOUND[name])
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """An inverted weight is found with one token, and says by how much the sampler's log-prob rose."""
    found = judged(LAW, _weight(lambda batch: (-_gap(batch)).exp())).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.sentence() == (
        "weight is 1 at row 0, token 0, expected at least 1.051: in the other call the sampler's log-prob of "
        "token 0 of row 0 is higher by 0.05 nats, which must not raise its weight"
    )
    assert LAW.level(found.case) == "fault"


def test_broken_elsewhere() -> None:
    """It is found in a weight per row, behind a narrow range, and between the current and the old policy."""
    of_row = _weight(lambda batch: (-_gap(batch).sum(1)).exp(), "B")
    narrow = _weight(lambda batch: (-_gap(batch)).exp() * (_gap(batch).abs() < 0.001))
    current = _weight(lambda batch: (batch.old_logprob - batch.logprob).exp(), reads="mask logprob old_logprob")
    for boundary in (of_row, narrow, current):
        assert judged(LAW, boundary).found is not None


def test_not_applicable() -> None:
    """Nothing is compared without a weight or a second policy, nor for weights that stay as they are."""
    alone = _weight(lambda batch: _gap(batch).exp(), reads="mask rollout_logprob")
    assert (judged(LAW, alone).tried, judged(LAW, alone).reason) == (
        0,
        "the boundary does not read a policy and a sampler",
    )
    keep = specimen(_gap, reads=READS, stage="correct", outputs={"keep": Output("B T", "", "keep")})
    assert (judged(LAW, keep).tried, judged(LAW, keep).reason) == (0, "the boundary returns no weight")
    assert judged(LAW, _weight(lambda batch: batch.mask.float())).tried == 0


def test_refusing() -> None:
    """A boundary that refuses every batch is not judged."""

    def refuses(batch: Batch) -> Tensor:
        raise ValueError(f"{batch.rows} rows")

    assert judged(LAW, _weight(refuses)).tried == 0
