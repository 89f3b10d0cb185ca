"""CFG001: a sound, a broken and a refusing specimen."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output, Stage
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
    """A knob that is never read is found; its neighbor is not blamed."""
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


def _weighted(batch: Batch, weight: float) -> Tensor:
    return _loss(batch) * weight


@pytest.mark.parametrize(
    ("value", "limit"),
    [(0.2, lambda x: max(x, 0.2)), (4.0, lambda x: min(x, 4.0))],
    ids=["half is below a floor", "eight times is above a ceiling"],
)
def test_number_that_saturates(value: float, limit: Callable[[float], float]) -> None:
    """A limit that hides the one value does not hide the other."""

    def loss(batch: Batch, weight: float) -> Tensor:
        return _weighted(batch, limit(weight))

    settings = {"default": {"weight": value}}
    judgement = judged(LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS, settings=settings))
    assert judgement.found is None
    assert judgement.tried > 0


def test_share_stays_a_share() -> None:
    """A number below 1 may be a share of the rows: it is raised to 1 at most."""

    def loss(batch: Batch, share: float) -> Tensor:
        if share > 1:
            raise RuntimeError("selected index k out of range")
        return _weighted(batch, share)

    settings = {"default": {"share": 0.5}}
    assert judged(LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS, settings=settings)).found is None


def test_refused_value_is_no_evidence() -> None:
    """Where half of a number is refused, nothing is known of it."""

    def loss(batch: Batch, weight: float) -> Tensor:
        if weight < 2.0:
            raise ValueError("weight is too small")
        return _loss(batch)

    settings = {"default": {"weight": 2.0}}
    judgement = judged(LAW, specimen(loss, reads=READS, stage="policy-loss", outputs=LOSS, settings=settings))
    assert (judgement.tried, judgement.found) == (0, None)


@pytest.mark.parametrize(("stage", "name", "axes"), [("policy-loss", "clip_fraction", ""), ("correct", "keep", "B T")])
def test_outputs_that_need_not_depend_on_every_number(stage: Stage, name: str, axes: str) -> None:
    """A logged number, and the rows that are kept, may be results of other settings."""

    def numbers(batch: Batch, weight: float) -> Tensor:
        return batch.mask.float() if axes else batch.mask.float().mean()

    made = specimen(
        numbers, reads=READS, stage=stage, outputs={name: Output(axes)}, settings={"default": {"weight": 0.5}}
    )
    assert judged(LAW, made).reason == "the boundary has no setting that must have an effect"


def test_not_applicable() -> None:
    """A boundary that claims no knob and takes no number has none."""
    judgement = judged(LAW, specimen(_loss, reads=READS, stage="policy-loss", outputs=LOSS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary has no setting that must have an effect")
