"""CFG001: a sound, a broken and a refusing specimen."""

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.knob_without_effect import LAW
from rl_sentinel.search.companion_cases import companion_pool
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss")}
READS = "logprob old_logprob advantage mask"
KNOBS = {"knob:clip_low": "0.1|0.4", "knob:clip_high": "0.1|0.4"}


def _loss(batch: Batch, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0).exp()
    cut = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain = torch.minimum(ratio * batch.advantage, cut * batch.advantage)
    return -torch.where(batch.mask, gain, 0.0).sum()


def _deaf(batch: Batch, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    return _loss(batch, clip_low, clip_low)


def test_sound() -> None:
    """Both sides of a clip range matter, each on other cases."""
    judgement = judged(LAW, specimen(_loss, reads=READS, stage="policy-loss", outputs=LOSS, claims=KNOBS))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A knob that is never read is found; its neighbour is not blamed."""
    found = judged(LAW, specimen(_deaf, reads=READS, stage="policy-loss", outputs=LOSS, claims=KNOBS)).found
    assert found is not None
    assert found.expectation.name == "clip_high"
    assert found.expectation.sentence() == (
        "changing clip_high from 0.1 to 0.4 had no effect on any output or gradient "
        f"on any of {1 + len(companion_pool())} batches"
    )
    assert found.case.batch.mask.numel() > 1, "a batch on which a range could matter"


def test_number_of_the_configuration() -> None:
    """Without a claim, each number that the call is built from must matter."""
    settings = {"default": {"clip_low": 0.2, "clip_high": 0.3}}
    sound, broken = (
        judged(LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS, settings=settings))
        for loss in (_loss, _deaf)
    )
    assert sound.found is None
    assert sound.tried > 0
    assert broken.found is not None
    assert broken.found.expectation.sentence() == (
        "changing clip_high from 0.3 to 0.15 had no effect on any output or gradient "
        f"on any of {1 + len(companion_pool())} batches"
    )


def test_numbers_without_a_visible_effect() -> None:
    """A guard of a division and the absence of a limit are no settings to see; nor is a claimed one of speed."""

    def loss(batch: Batch, clip_low: float = 0.2, **_unread: float) -> Tensor:
        return _loss(batch, clip_low)

    settings = {"default": {"clip_low": 0.2, "epsilon": 1e-6, "limit": 1e6, "chunk": 8.0}}
    claimed = {"inert:chunk": "4.0|8.0"}
    judgement = judged(
        LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS, settings=settings, claims=claimed)
    )
    assert judgement.found is None
    assert judgement.tried > 0


def test_not_applicable() -> None:
    """A boundary that claims no knob and takes no number has none."""
    judgement = judged(LAW, specimen(_loss, reads=READS, stage="policy-loss", outputs=LOSS))
    assert (judgement.tried, judgement.reason) == (0, "it has no setting that must have an effect")
