"""Layouts: what is put can be taken back, on every small and some random cases."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from rl_sentinel.adapters.layout import (
    put_full,
    put_ragged,
    put_right,
    take_full,
    take_ragged,
    take_right,
    token_rewards,
)
from rl_sentinel.cases.random import random_cases
from rl_sentinel.cases.small import small_cases
from rl_sentinel.core.batch import Batch, batch_of, with_columns

BATCHES = [case.batch for case in small_cases() + random_cases(3, 12)]


def _columns(batch: Batch) -> Iterator[Tensor]:
    """Columns with axes ``[B, T]``, without what stands in the padding."""
    for name in ("logprob", "advantage", "value", "mask"):
        yield getattr(batch, name) * batch.valid


@pytest.mark.parametrize("batch", BATCHES)
def test_right_aligned(batch: Batch) -> None:
    """Right-aligned and back."""
    for column in _columns(batch):
        assert torch.equal(take_right(put_right(column, batch.length), batch.length), column)


@pytest.mark.parametrize("batch", BATCHES)
def test_ragged(batch: Batch) -> None:
    """One tensor per row and back."""
    for column in _columns(batch):
        assert torch.equal(take_ragged(put_ragged(column, batch.length), batch.width), column)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("shift", [0, 1])
def test_full_sequences(batch: Batch, shift: int) -> None:
    """Full sequences and back, aligned to tokens or to what predicts them, prompts of any length."""
    prompts = with_columns(batch, prompt_length=1 + torch.arange(batch.rows) % 3)
    for column in _columns(prompts):
        full = put_full(column, prompts, extra=1, shift=shift)
        assert full.shape[1] == int(prompts.prompt_length.max()) + prompts.width + 1
        assert torch.equal(take_full(full, prompts, shift=shift), column)


def test_where_tokens_stand() -> None:
    """The places by hand: a prompt of two, a response of two in three."""
    batch = batch_of(
        torch.tensor([[True, True, False]]),
        length=torch.tensor([2]),
        prompt_length=torch.tensor([2]),
        logprob=torch.tensor([[1.0, 2.0, 0.0]]),
    )
    assert put_right(batch.logprob, batch.length).tolist() == [[0.0, 1.0, 2.0]]
    assert put_full(batch.logprob, batch).tolist() == [[0.0, 0.0, 1.0, 2.0, 0.0]]
    assert put_full(batch.logprob, batch, shift=1).tolist() == [[0.0, 1.0, 2.0, 0.0, 0.0]]


def test_outcome_stands_on_the_last_response_token() -> None:
    """Trained or not, and added to what the token has."""
    batch = batch_of(
        torch.tensor([[True, False, False]]),
        length=torch.tensor([2]),
        reward=torch.tensor([3.0]),
        token_reward=torch.tensor([[0.5, 0.25, 0.0]]),
    )
    assert token_rewards(batch).tolist() == [[0.5, 3.25, 0.0]]
