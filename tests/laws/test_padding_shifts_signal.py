"""PAD001: a sound, a broken and a refusing specimen."""

from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.padding_shifts_signal import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "reward", "loss")}
READS = "logprob advantage mask"


def _over_tokens(batch: Batch) -> Tensor:
    return -(batch.logprob * batch.advantage * batch.mask).sum() / batch.mask.sum().clamp(min=1)


def _over_width(batch: Batch) -> Tensor:
    return -(batch.logprob * batch.advantage * batch.mask).mean()


def test_sound() -> None:
    """A mean over trained tokens does not know the width."""
    judgement = judged(LAW, specimen(_over_tokens, reads=READS, stage="policy-loss", outputs=LOSS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A mean over all positions is found, with a single token."""
    found = judged(LAW, specimen(_over_width, reads=READS, stage="policy-loss", outputs=LOSS)).found
    assert found is not None
    assert found.case.batch.mask.tolist() == [[True]]
    assert found.expectation.name == "loss"
    assert found.expectation.sentence() == (
        "padding must have no influence, yet adding 1 position of padding moves loss from 1 to 0.5"
    )
    assert LAW.level(found.case) == "fault"


def test_not_applicable() -> None:
    """A fixed width may be the claimed normalizer."""
    boundary = specimen(_over_width, reads=READS, stage="policy-loss", outputs=LOSS, claims={"normalizer": "width"})
    judgement = judged(LAW, boundary)
    assert (judgement.tried, judgement.reason) == (0, "the boundary's normalizer is the width")
