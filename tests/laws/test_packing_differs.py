"""PAD002: a sound, a broken and a refusing specimen."""

from functools import partial

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch, take_rows
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.layout import Axis
from rl_sentinel.laws.packing_differs import LAW
from specimens import judged, specimen

OUTPUTS = {"logprob": Output("B T", "nats", "logprob")}
CLAIMS = {"packs": "yes"}


def _unpacked(packed: Tensor, starts: list[int], batch: Batch) -> Tensor:
    rows = torch.zeros(batch.rows, batch.width)
    for row, (start, length) in enumerate(zip(starts, batch.length.tolist(), strict=True)):
        rows[row, :length] = packed[start : start + length]
    return rows


def _sound(batch: Batch) -> Tensor:
    ends = batch.length.cumsum(0)
    return _unpacked(batch.logprob[batch.valid], (ends - batch.length).tolist(), batch)


def _one_early(batch: Batch) -> Tensor:
    """Every sequence after the first one starts one token early."""
    starts = (batch.length.cumsum(0) - batch.length - 1).clamp(min=0)
    return _unpacked(batch.logprob[batch.valid], starts.tolist(), batch)


def _positions_go_on(batch: Batch) -> Tensor:
    """Positions are counted over the pack, where they should start anew with each sequence."""
    positions = torch.arange(int(batch.length.sum())).float()
    ends = batch.length.cumsum(0)
    return _unpacked(positions, (ends - batch.length).tolist(), batch)


def _packs_reversed(batch: Batch, micro_batches: int) -> Tensor:
    """Each pack is sound, and the packs come back last first."""
    rows = torch.arange(batch.rows).chunk(micro_batches)
    return torch.cat([_sound(take_rows(batch, index)) for index in reversed(rows)])


def test_sound() -> None:
    boundary = specimen(_sound, reads="logprob length", stage="batch", outputs=OUTPUTS, claims=CLAIMS)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken_by_a_cut() -> None:
    boundary = specimen(_one_early, reads="logprob length", stage="batch", outputs=OUTPUTS, claims=CLAIMS)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.case.batch.rows == 2
    sentence = found.expectation.sentence()
    assert sentence.startswith(
        "packing must not change the numbers of a sequence, yet packing row 1 with all other rows"
    )


def test_broken_by_positions() -> None:
    boundary = specimen(_positions_go_on, reads="logprob length", stage="batch", outputs=OUTPUTS, claims=CLAIMS)
    found = judged(LAW, boundary).found
    assert found is not None
    assert found.expectation.sentence() == (
        "packing must not change the numbers of a sequence, yet packing row 1 with all other rows moves logprob "
        "at row 1, token 0 from 0 to 1"
    )
    assert LAW.level(found.case) == "fault"


@pytest.mark.parametrize("cut", [True, False])
def test_broken_between_packs(cut: bool) -> None:
    """A fault that needs two packs is found where the boundary cuts its rows, and only there."""
    compute = _packs_reversed if cut else partial(_packs_reversed, micro_batches=1)
    follows: frozenset[Axis] = frozenset({"micro_batches"}) if cut else frozenset()
    reads = "logprob length"
    judgement = judged(
        LAW, specimen(compute, reads=reads, stage="batch", outputs=OUTPUTS, claims=CLAIMS, follows=follows)
    )
    assert judgement.tried > 0
    assert (judgement.found is not None) is cut
    if judgement.found:
        assert "packing row 0 with some of the other rows moves logprob" in judgement.found.expectation.sentence()


def test_not_applicable() -> None:
    judgement = judged(LAW, specimen(_sound, reads="logprob length", stage="batch", outputs=OUTPUTS))
    assert judgement.reason == "the boundary does not claim to pack sequences"
