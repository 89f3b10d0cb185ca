"""ONP001: sound, broken and refusing specimens."""

import re

import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Output
from rl_sentinel.laws.on_policy_identity_broken import LAW
from specimens import judged, specimen

LOSS = {"loss": Output("", "", "loss"), "clip": Output("", "", "clip_fraction"), "kl": Output("", "nats", "kl.k1")}
READS = "logprob old_logprob ref_logprob advantage mask"
RATIO = {"ratio": "yes"}
KEEP = {"keep": Output("B T", "", "keep")}


def _ppo(batch: Batch, *, low: float = 0.8, sign: float = 1.0, kl_coef: float = 0.0) -> dict[str, Tensor]:
    log_ratio = torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0)
    ratio, tokens = log_ratio.exp(), batch.mask.sum().clamp(min=1)
    cut = ratio.clamp(low, 1.2)
    gain = torch.minimum(ratio * batch.advantage, cut * batch.advantage) * sign
    kl = torch.where(batch.mask, batch.logprob - batch.ref_logprob, 0.0).sum() / tokens
    clipped = ((ratio < low) | (ratio > 1.2)) & batch.mask
    loss = -torch.where(batch.mask, gain, 0.0).sum() / tokens + kl_coef * kl
    return {"loss": loss, "clip": clipped.sum() / tokens, "kl": kl}


def _biased(batch: Batch) -> dict[str, Tensor]:
    return _ppo(batch, low=1.1)


def _inverted(batch: Batch) -> dict[str, Tensor]:
    return _ppo(batch, sign=-1.0)


def _squared(batch: Batch) -> dict[str, Tensor]:
    seen = _ppo(batch)
    gain = torch.where(batch.mask, batch.logprob * batch.advantage.abs() * batch.advantage, 0.0)
    return seen | {"loss": -gain.sum()}


def test_sound() -> None:
    """PPO's clipped loss is REINFORCE on the first step, its KL term set aside."""
    settings = {"default": {"kl_coef": 0.5}}
    boundary = specimen(_ppo, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO, settings=settings)
    judgement = judged(LAW, boundary)
    assert judgement.found is None
    assert judgement.tried > 0


def test_broken() -> None:
    """A clip range that leaves out 1 clips everything at once."""
    found = judged(LAW, specimen(_biased, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO)).found
    assert found is not None
    assert found.expectation.sentence() == "clip is 1, expected 0: all policies are equal"
    assert found.case.batch.mask.shape == (1, 1)


def test_broken_sign() -> None:
    found = judged(LAW, specimen(_inverted, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "minus the gradient divided by the advantage is -1 at row 0, expected above 0: "
        "all policies are equal, so the gradient must point against the advantage"
    )


def test_broken_weights() -> None:
    found = judged(LAW, specimen(_squared, reads=READS, stage="policy-loss", outputs=LOSS, claims=RATIO)).found
    assert found is not None
    reason = "all policies are equal, so the gradient must be minus the advantage, times one factor per row"
    sentence = rf"gradient of logprob is \S+ at row 0, token \d, expected \S+: {reason}"
    assert re.fullmatch(sentence, found.expectation.sentence())
    assert found.case.batch.mask.shape == (1, 2)


def test_broken_aggregation() -> None:
    def row_means(batch: Batch) -> Tensor:
        gain = torch.where(batch.mask, batch.logprob * batch.advantage, 0.0)
        return -(gain.sum(1) / batch.mask.sum(1).clamp(min=1)).mean()

    said = RATIO | {"aggregation": "token-mean"}
    outputs = {"loss": Output("", "", "loss")}
    found = judged(LAW, specimen(row_means, reads=READS, stage="policy-loss", outputs=outputs, claims=said)).found
    assert found is not None
    assert found.expectation.sentence().endswith("times one factor for the whole batch")
    assert (
        judged(LAW, specimen(row_means, reads=READS, stage="policy-loss", outputs=outputs, claims=RATIO)).found is None
    )


def test_rejection() -> None:
    def within(batch: Batch, *, strict: bool = False) -> Tensor:
        gap = (batch.old_logprob - batch.rollout_logprob).abs()
        return (gap > 0) & (gap < 2) if strict else gap < 2

    reads = "old_logprob rollout_logprob mask"
    sound = judged(LAW, specimen(within, reads=reads, stage="correct", outputs=KEEP))
    assert sound.found is None
    assert sound.tried > 0
    settings = {"default": {"strict": True}}
    found = judged(LAW, specimen(within, reads=reads, stage="correct", outputs=KEEP, settings=settings)).found
    assert found is not None
    assert found.expectation.sentence() == "keep is 0 at row 0, token 0, expected 1: all policies are equal"


def test_not_applicable() -> None:
    """A loss that claims no ratio is not judged."""
    judgement = judged(LAW, specimen(_ppo, reads=READS, stage="policy-loss", outputs=LOSS))
    assert (judgement.tried, judgement.reason) == (0, "the boundary claims no ratio of two policies")


def test_a_loss_that_makes_its_own_advantages_is_left_alone() -> None:
    """A loss of rewards has other advantages than the batch."""
    reads = READS.replace("advantage", "reward")
    judgement = judged(LAW, specimen(_ppo, reads=reads, stage="policy-loss", outputs=LOSS, claims=RATIO))
    assert (judgement.tried, judgement.reason) == (0, "the boundary is not given the advantages")
