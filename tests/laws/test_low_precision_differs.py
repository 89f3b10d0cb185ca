"""DTP001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.low_precision_differs import LAW
from specimens import judged, specimen

KL = {"kl": Output("B T", "nats", "kl.k1")}
READS = "logprob ref_logprob mask"


def _difference(batch: Batch) -> Tensor:
    return batch.logprob - batch.ref_logprob


def _cancelling(batch: Batch) -> Tensor:
    offset = 1e5
    return 4 * ((batch.logprob + offset) - (batch.ref_logprob + offset))


def test_sound() -> None:
    """A difference of log-probs loses no more than its rounding."""
    judgement = judged(LAW, specimen(_difference, reads=READS, stage="kl", outputs=KL))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """Numbers that are lifted before they are subtracted lose everything in bfloat16."""
    found = judged(LAW, specimen(_cancelling, reads=READS, stage="kl", outputs=KL)).found
    assert found is not None
    assert found.relation.story == "logprob, ref_logprob passed as bfloat16 and as float64, the same numbers"
    assert LAW.level(found.case) == "hazard"


def test_counted_in_low_precision() -> None:
    """Numbers lifted by 1 lose a rounding or two; lifted by 64, they lose what they differ by."""
    judgement = judged(LAW, specimen(lambda b: _lifted(b, 1.0), reads=READS, stage="kl", outputs=KL))
    assert judgement.found is None
    found = judged(LAW, specimen(lambda b: _lifted(b, 64.0), reads=READS, stage="kl", outputs=KL)).found
    assert found is not None


def _lifted(batch: Batch, offset: float) -> Tensor:
    return (batch.logprob - offset) - (batch.ref_logprob - offset)


def test_refused() -> None:
    """A boundary that refuses the dtype in words is not judged."""

    def strict(batch: Batch) -> Tensor:
        if batch.logprob.dtype == torch.bfloat16:
            message = "logprob is bfloat16, expected float32"
            raise ValueError(message)
        return _difference(batch)

    judgement = judged(LAW, specimen(strict, reads=READS, stage="kl", outputs=KL))
    assert (judgement.tried, judgement.reason) == (0, "ValueError: logprob is bfloat16, expected float32")


def test_not_applicable() -> None:
    """Decisions may flip at their threshold."""
    keep = {"keep": Output("B T", "", "keep")}
    judgement = judged(LAW, specimen(_difference, reads=READS, stage="kl", outputs=keep))
    assert (judgement.tried, judgement.reason) == (0, "it exposes decisions only")
