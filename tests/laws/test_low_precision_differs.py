"""DTP001: a sound, a broken and a refusing specimen."""

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws import low_precision_differs
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
    assert found.expectation.sentence() == (
        "the same numbers must give the same result up to rounding, "
        "yet passing logprob, ref_logprob as bfloat16 instead of float64 moves kl at row 0, token 0 from 4 to 0"
    )
    assert LAW.level(found.case) == "hazard"


def test_counted_in_low_precision() -> None:
    """Numbers lifted by 1 lose a rounding or two; lifted by 64, they lose what they differ by."""
    judgement = judged(LAW, specimen(lambda b: _lifted(b, 1.0), reads=READS, stage="kl", outputs=KL))
    assert judgement.found is None
    found = judged(LAW, specimen(lambda b: _lifted(b, 64.0), reads=READS, stage="kl", outputs=KL)).found
    assert found is not None


def _lifted(batch: Batch, offset: float) -> Tensor:
    return (batch.logprob - offset) - (batch.ref_logprob - offset)


def _decided(batch: Batch) -> Tensor:
    """100 where a log-prob is above -1 by a little, which bfloat16 does not see."""
    return 100 * ((batch.logprob + 1e-3) > -1.0).to(batch.logprob.dtype) + batch.logprob


def test_decision_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that flips at its threshold would flip in float64 too, at inputs a rounding away."""
    judgement = judged(LAW, specimen(_decided, reads="logprob mask", stage="kl", outputs=KL))
    assert judgement.found is None
    assert judgement.tried > 0
    monkeypatch.setattr(low_precision_differs, "DRAWS", 0)
    assert judged(LAW, specimen(_decided, reads="logprob mask", stage="kl", outputs=KL)).found is not None


def test_what_does_not_count_is_no_jump() -> None:
    masked = specimen(
        lambda b: torch.where(b.mask, _cancelling(b), torch.nan) if not b.mask.all() else _difference(b),
        reads=READS,
        stage="kl",
        outputs=KL,
    )
    assert judged(LAW, masked).found is not None


def test_numbers_that_no_model_gives() -> None:
    """A probability above 1, or a sum of squares below its own, is tried nowhere; rewards stay in float32."""
    seen: list[Batch] = []

    def looking(batch: Batch) -> Tensor:
        seen.append(batch)
        return batch.old_logprob.exp() + batch.pi_squared + batch.reward.unsqueeze(1) + batch.mask

    reads = "old_logprob pi_squared reward mask"
    judgement = judged(LAW, specimen(looking, reads=reads, stage="kl", outputs=KL))
    low = [b for b in seen if b.old_logprob.dtype == torch.bfloat16]
    assert judgement.found is None
    assert low
    assert all(bool((b.old_logprob <= 0).all()) for b in low)
    assert all(bool((b.pi_squared.float() >= (2 * b.old_logprob.float()).exp()).all()) for b in low)
    assert {b.reward.dtype for b in low} == {torch.float32}


def test_rewards_alone() -> None:
    """What is made of rewards alone is passed nothing in bfloat16."""
    boundary = specimen(lambda b: b.reward.unsqueeze(1) * b.mask, reads="reward mask")
    assert judged(LAW, boundary).reason == "the boundary reads no column that a model computes"


def test_refused() -> None:
    """A boundary that refuses the dtype in words is not judged."""

    def strict(batch: Batch) -> Tensor:
        if batch.logprob.dtype == torch.bfloat16:
            message = "logprob is bfloat16, expected float32"
            raise ValueError(message)
        return _difference(batch)

    judgement = judged(LAW, specimen(strict, reads=READS, stage="kl", outputs=KL))
    assert (judgement.tried, judgement.reason) == (0, "ValueError: logprob is bfloat16, expected float32")


def test_refused_by_torch() -> None:
    def mixing(batch: Batch) -> Tensor:
        made = torch.zeros_like(batch.ref_logprob, dtype=torch.promote_types(batch.reward.dtype, torch.float32))
        made[torch.arange(batch.rows)] = batch.logprob
        return made

    judgement = judged(LAW, specimen(mixing, reads=f"reward {READS}", stage="kl", outputs=KL))
    assert judgement.tried == 0
    assert judgement.reason.startswith("RuntimeError: Index put requires")


def test_not_applicable() -> None:
    """Decisions may flip at their threshold."""
    keep = {"keep": Output("B T", "", "keep")}
    judgement = judged(LAW, specimen(_difference, reads=READS, stage="kl", outputs=keep))
    assert (judgement.tried, judgement.reason) == (0, "the boundary exposes only decisions")
