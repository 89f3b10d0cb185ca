"""Readings of users' functions: a ceiling of the ratio where the function has one, and the column that is averaged."""

from dataclasses import replace

import pytest
import torch

from rl_sentinel.adapters.kit.bind_text import codec_of
from rl_sentinel.adapters.user_boundary import user_boundary
from rl_sentinel.core.claims import claims
from rl_sentinel.search.filled_batch import filled
from rl_sentinel.search.user_readings import aggregated_column, plain_or_dual_clip, plain_or_truncated

BATCH = replace(
    filled([[1, 1]], reward=[1.0], group=[0]),
    logprob=torch.tensor([[0.0, 0.0]]),
    old_logprob=torch.tensor([[-2.0, 0.0]]),
    advantage=torch.tensor([[-1.0, 1.0]]),
)
CLIP = {"clip_low": 0.2, "clip_high": 0.2}


def test_a_ceiling_adds_a_reading() -> None:
    assert list(plain_or_dual_clip(BATCH, CLIP)) == [""]
    assert plain_or_dual_clip(BATCH, {**CLIP, "ceiling": 3.0})["dual clip"].tolist() == [[3.0, -1.0]]
    assert list(plain_or_truncated(BATCH, {})) == [""]
    assert plain_or_truncated(BATCH, {"ceiling": 3.0})["truncated"].tolist() == [[3.0, -1.0]]


@pytest.mark.parametrize("column", ["value", "entropy", "logprob", "advantage"])
def test_the_column_that_is_passed_is_averaged(column: str) -> None:
    codecs = {"numbers": codec_of(column), "mask": codec_of("mask")}
    stated = claims("stated", aggregation="token-mean")
    boundary = user_boundary("own.mean", "aggregate", stated, {}, None, codecs)
    make = aggregated_column(boundary, "")
    assert make is not None
    assert torch.equal(make(BATCH, {})[""], getattr(BATCH, column).double())
