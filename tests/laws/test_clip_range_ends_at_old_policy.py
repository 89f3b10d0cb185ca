"""ONP002: sound, broken and refusing specimens."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from rl_sentinel.core.batch import Batch
from rl_sentinel.core.boundary import Boundary, Output
from rl_sentinel.laws.clip_range_ends_at_old_policy import LAW
from specimens import judged, specimen

OUTPUTS = {"loss": Output("", "", "loss")}
READS = "logprob old_logprob advantage mask"
RATIO = {"ratio": "yes"}


def _log_ratio(batch: Batch) -> Tensor:
    return torch.where(batch.mask, batch.logprob - batch.old_logprob, 0.0)


def _mean(tokens: Tensor, batch: Batch) -> Tensor:
    return torch.where(batch.mask, tokens, 0.0).sum() / batch.mask.sum().clamp(min=1)


def _ppo(batch: Batch, low: float, high: float) -> dict[str, Tensor]:
    ratio = _log_ratio(batch).exp()
    gain = torch.minimum(ratio * batch.advantage, ratio.clamp(low, high) * batch.advantage)
    outside = ((ratio < low) | (ratio > high)).float()
    return {"loss": -_mean(gain, batch), "clip": _mean(outside, batch)}


def _weighted(batch: Batch, low: float, high: float) -> dict[str, Tensor]:
    weight = _log_ratio(batch).exp().detach().clamp(low, high)
    return {"loss": -_mean(weight * batch.logprob * batch.advantage, batch)}


def _soft(batch: Batch) -> dict[str, Tensor]:
    gate = 4 * torch.sigmoid(_log_ratio(batch).exp() - 1)
    return {"loss": -_mean(gate * batch.advantage, batch)}


def _of_row(batch: Batch, low: float, high: float) -> dict[str, Tensor]:
    means = _log_ratio(batch).sum(1, keepdim=True) / batch.mask.sum(1, keepdim=True).clamp(min=1)
    ratio = means.exp().expand(batch.mask.shape)
    gain = torch.minimum(ratio * batch.advantage, ratio.clamp(low, high) * batch.advantage)
    return {"loss": -_mean(gain, batch)}


def _boundary(loss: Callable[..., dict[str, Tensor]], **claims: str) -> Boundary:
    return specimen(loss, reads=READS, stage="policy-loss", outputs=OUTPUTS, claims=RATIO | claims)


@pytest.mark.parametrize(
    "loss",
    [
        partial(_ppo, low=0.8, high=1.2),
        partial(_weighted, low=0.0, high=5.0),
        partial(_weighted, low=0.9997, high=1.0004),
        _soft,
        partial(_of_row, low=0.9997, high=1.0004),
    ],
)
def test_sound(loss: Callable[..., dict[str, Tensor]]) -> None:
    """A range with 1 between its bounds, of tokens or of rows, and a smooth gate."""
    judgement = judged(LAW, _boundary(loss))
    assert judgement.found is None
    assert judgement.tried > 0


@pytest.mark.parametrize(
    "loss",
    [
        partial(_ppo, low=1.0, high=1.2),
        partial(_ppo, low=0.8, high=1.0),
        partial(_weighted, low=1.0, high=6.0),
        partial(_weighted, low=0.0, high=1.0),
        partial(_of_row, low=1.0, high=1.2),
    ],
)
def test_broken(loss: Callable[..., dict[str, Tensor]]) -> None:
    """A range that begins or ends at 1 stops, or does not weigh, small steps to one side."""
    found = judged(LAW, _boundary(loss)).found
    assert found is not None
    assert found.case.batch.mask.shape == (1, 1)


def test_sentence() -> None:
    found = judged(LAW, _boundary(partial(_ppo, low=1.0, high=1.2))).found
    assert found is not None
    assert re.fullmatch(
        r"the clip range ends at a ratio of 1: the loss moves by \S+ if the ratios of row 0 rise to 1.0002, "
        r"and by \S+ if they fall to 0.9998",
        found.expectation.sentence(),
    )


def test_counted_as_clipped() -> None:
    """A clip fraction that counts ratios next to 1."""

    def counted(batch: Batch) -> dict[str, Tensor]:
        return _soft(batch) | {"clip": _mean((_log_ratio(batch) < 0).float(), batch)}

    outputs = {**OUTPUTS, "clip": Output("", "", "clip_fraction", over="live")}
    found = judged(LAW, specimen(counted, reads=READS, stage="policy-loss", outputs=outputs, claims=RATIO)).found
    assert found is not None
    assert found.expectation.sentence() == (
        "clip is 1, expected 0: no ratio is near a bound: those of row 0 are 0.9998, all others 1"
    )


@pytest.mark.parametrize(
    ("reads", "said", "reason"),
    [
        (READS, {}, "the boundary claims no ratio of two policies"),
        (
            READS.replace("old_logprob ", ""),
            RATIO,
            "the boundary has no loss that weighs ratios of log-probs by advantages",
        ),
        (
            READS,
            RATIO | {"on_policy_gradient": "other"},
            "the boundary claims another gradient than the policy gradient on the first step",
        ),
    ],
)
def test_not_applicable(reads: str, said: dict[str, str], reason: str) -> None:
    loss = specimen(_soft, reads=reads, stage="policy-loss", outputs=OUTPUTS, claims=said)
    judgement = judged(LAW, loss)
    assert (judgement.tried, judgement.reason) == (0, reason)
