"""CFG002: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.knob_with_side_effect import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob mask"
INERT = {"inert:by_tokens": "false|true"}


def _of_rows(batch: Batch) -> Tensor:
    counts = batch.mask.sum(1)
    return -(torch.where(batch.mask, batch.logprob, 0.0).sum(1) / counts).nan_to_num()


def _accumulated(batch: Batch, *, by_tokens: bool = False) -> Tensor:
    """Two micro-batches or one: each counts for its rows."""
    losses = _of_rows(batch)
    parts = [losses] if by_tokens else list(losses.tensor_split(2))
    return torch.stack([part.sum() / batch.rows for part in parts]).sum()


def _scaled(batch: Batch, *, by_tokens: bool = False) -> Tensor:
    """One micro-batch is divided by the number that was configured."""
    return _accumulated(batch) / 2 if by_tokens else _accumulated(batch)


def test_sound() -> None:
    judgement = judged(LAW, specimen(_accumulated, reads=READS, stage="policy-loss", outputs=LOSS, claims=INERT))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    found = judged(LAW, specimen(_scaled, reads=READS, stage="policy-loss", outputs=LOSS, claims=INERT)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "a setting of speed or memory must change no number, yet changing by_tokens from false to true moves loss "
        "from 1 to 0.5"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    judgement = judged(LAW, specimen(_accumulated, reads=READS, stage="policy-loss", outputs=LOSS))
    assert judgement.reason == "the boundary claims no setting of speed or memory"
