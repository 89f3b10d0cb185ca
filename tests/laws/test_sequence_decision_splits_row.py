"""SCP001: a sound, a broken and a refusing specimen."""

import re

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.sequence_decision_splits_row import LAW
from specimens import judged, specimen

KEEP = {"keep": Output("B T", "", "keep", scope="sequence")}
READS = "logprob rollout_logprob advantage mask"


def _far(batch: Batch) -> Tensor:
    gap = (batch.rollout_logprob - batch.logprob) * batch.mask
    return gap.sum(dim=1, keepdim=True) / batch.mask.sum(dim=1, keepdim=True).clamp(min=1) > 0.1


def _whole(batch: Batch) -> Tensor:
    low = (batch.advantage * batch.mask).sum(dim=1, keepdim=True) < 0
    return (~(_far(batch) & low)).float().expand(batch.mask.shape)


def _per_token(batch: Batch) -> Tensor:
    return (~(_far(batch) & (batch.advantage < 0))).float()


def test_sound() -> None:
    """A decision on sums over the row is one for all its tokens."""
    judgement = judged(LAW, specimen(_whole, reads=READS, stage="correct", outputs=KEEP))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A decision that asks each token's sign keeps half a row: two tokens."""
    found = judged(LAW, specimen(_per_token, reads=READS, stage="correct", outputs=KEEP)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True, True]]
    assert re.fullmatch(
        r"keep is [01] at row 0, token 1, expected [01]: all trained tokens of a row must have the same value, that of "
        "the first",
        found.expectation.sentence(),
    )
    assert found.distance == 1.0  # one token kept, one not
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A decision per token that claims no more may differ from token to token."""
    outputs = {"keep": Output("B T", "", "keep", scope="token")}
    judgement = judged(LAW, specimen(_per_token, reads=READS, stage="correct", outputs=outputs))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no output per token of sequence scope")
