"""MET001: sound, broken and refusing specimens."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.core.expectations import Equal
from rl_sentinel.laws.metric_fits_no_definition import LAW
from specimens import judged, specimen

KL = {"kl": Output("", "nats", "kl.k1")}
READS = "logprob ref_logprob mask"


def _token_mean(batch: Batch) -> Tensor:
    return (batch.logprob - batch.ref_logprob)[batch.mask].sum() / batch.mask.sum().clamp(min=1)


def _row_mean(batch: Batch) -> Tensor:
    kl = (batch.logprob - batch.ref_logprob) * batch.mask
    return (kl.sum(1) / batch.mask.sum(1).clamp(min=1)).mean()


def _divided_twice(batch: Batch) -> Tensor:
    kl = (batch.logprob - batch.ref_logprob) * batch.mask
    return (kl.mean(1) / batch.mask.sum(1).clamp(min=1)).mean()


@pytest.mark.parametrize("compute", [_token_mean, _row_mean])
def test_sound(compute: Callable[[Batch], Tensor]) -> None:
    """A mean over tokens and one over rows are both accepted."""
    judgement = judged(LAW, specimen(compute, reads=READS, stage="metric", outputs=KL))
    assert judgement.found is None
    assert judgement.tried > 0


def test_claimed_definition() -> None:
    claims = {"definition:kl": "mean of k1 of logprob against ref_logprob over trained tokens"}
    token, row = (
        judged(LAW, specimen(compute, reads=READS, stage="metric", outputs=KL, claims=claims))
        for compute in (_token_mean, _row_mean)
    )
    assert token.found is None
    assert row.found is not None


def test_clip_fraction() -> None:
    def fraction(batch: Batch, clip_low: float, clip_high: float) -> Tensor:
        ratio = (batch.logprob - batch.old_logprob).exp()
        outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
        return outside[batch.mask].sum() / batch.mask.sum().clamp(min=1)

    outputs = {"clip": Output("", "", "clip_fraction")}
    settings = {"default": {"clip_low": 0.2, "clip_high": 0.3}}
    reads = "logprob old_logprob advantage mask"
    judgement = judged(LAW, specimen(fraction, reads=reads, stage="metric", outputs=outputs, settings=settings))
    assert judgement.found is None
    assert judgement.tried > 0


def test_a_share_of_its_own_definition() -> None:
    """What a loss calls clipped is its own matter; that it is a share of the tokens is not."""

    def fraction(batch: Batch) -> Tensor:
        outside = (batch.logprob - batch.old_logprob).exp() > 1.5
        return outside[batch.mask].sum() / batch.mask.sum().clamp(min=1)

    def kept(batch: Batch) -> Tensor:
        return -fraction(batch)

    about: dict[str, Any] = {
        "reads": "logprob old_logprob mask",
        "stage": "metric",
        "outputs": {"clip": Output("", "", "clip_fraction.own")},
    }
    sound, broken = (judged(LAW, specimen(compute, **about)) for compute in (fraction, kept))
    assert sound.found is None
    assert sound.tried > 0
    assert broken.found is not None
    assert broken.found.expectation.sentence().endswith("a share lies between 0 and 1 by any definition")


def test_dual_clip_fraction() -> None:
    """The share of tokens with a negative advantage and a ratio above the ceiling; a constant fits no definition."""

    def fraction(batch: Batch, ceiling: float) -> Tensor:
        above = (batch.logprob - batch.old_logprob).exp() > ceiling
        return (above & (batch.advantage < 0))[batch.mask].sum() / batch.mask.sum().clamp(min=1)

    def never(batch: Batch, ceiling: float) -> Tensor:
        return 0 * fraction(batch, ceiling)

    about: dict[str, Any] = {
        "reads": "logprob old_logprob advantage mask",
        "stage": "metric",
        "outputs": {"clip": Output("", "", "clip_fraction_lower")},
        "settings": {"default": {"ceiling": 1.25}},
    }
    sound, broken = (judged(LAW, specimen(compute, **about)) for compute in (fraction, never))
    assert sound.found is None
    assert sound.tried > 0
    assert broken.found is not None


@pytest.mark.parametrize(
    ("quantity", "compute"),
    [
        ("reward.mean", lambda b: b.reward.mean()),
        ("reward.std", lambda b: b.reward.std(correction=0)),
        ("response_length.max", lambda b: b.length.max().float()),
        ("advantage.mean", lambda b: b.advantage[b.mask].sum() / b.mask.sum().clamp(min=1)),
    ],
)
def test_sound_of_rows(quantity: str, compute: Callable[[Batch], Tensor]) -> None:
    outputs = {"number": Output("", "", quantity)}
    judgement = judged(LAW, specimen(compute, reads="reward advantage length mask", stage="metric", outputs=outputs))
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A KL that is divided by the tokens twice fits nothing."""
    found = judged(LAW, specimen(_divided_twice, reads=READS, stage="metric", outputs=KL)).found
    assert found is not None
    nearest = "sum of k1 of logprob against ref_logprob by the width"
    many = "the nearest of 40 known definitions; none fits all batches"
    reason = f"its definition is {nearest!r}, {many}"
    assert re.fullmatch(rf"kl is \S+, expected \S+: {reason}", found.expectation.sentence())
    assert isinstance(found.expectation, Equal)
    assert bool(torch.isfinite(found.expectation.expected))


def test_one_definition_on_all_cases() -> None:
    def turning(batch: Batch) -> Tensor:
        return (_row_mean if batch.rows % 2 else _token_mean)(batch)

    found = judged(LAW, specimen(turning, reads=READS, stage="metric", outputs=KL)).found
    assert found is not None
    sentence = found.expectation.sentence()
    assert (
        "its definition is 'mean of k1 of logprob against ref_logprob over trained tokens', the nearest of" in sentence
    )
    assert sentence.endswith("none fits all batches")


def test_not_applicable() -> None:
    """A quantity without known definitions is not judged."""
    outputs = {"speed": Output("", "tokens per second", "speed")}
    judgement = judged(LAW, specimen(_token_mean, reads=READS, stage="metric", outputs=outputs))
    assert (judgement.tried, judgement.reason) == (0, "no output is a quantity whose definitions are known")
