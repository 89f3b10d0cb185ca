"""What is made of logits, of places of tokens, and of trajectories, by hand."""

import math

import pytest
import torch

from adapters.library_specimen import outputs_of
from rl_sentinel.core.batch import batch_of


def test_log_probs_and_entropy_of_even_logits() -> None:
    batch = batch_of(torch.tensor([[True, False]]))
    size = math.log(batch.logits.shape[2])
    outputs = outputs_of("logprobs_and_entropy", "default", batch)
    assert outputs["logprob"].tolist()[0] == pytest.approx([-size, 0.0])
    assert outputs["entropy"].tolist()[0] == pytest.approx([size, 0.0])
    for name in ("logprob.logprobs", "logprob.logprobs_from_hidden"):
        for setting in ("default", "default, kernels"):
            assert outputs_of(name, setting, batch)["logprob"].tolist()[0][0] == pytest.approx(-size)


@pytest.mark.parametrize("stored", ["padded", "packed"])
def test_trained_tokens_are_counted(stored: str) -> None:
    mask = torch.tensor([[True, False, True], [True, True, False]])
    outputs = outputs_of("segments.turns", stored, batch_of(mask, length=torch.tensor([3, 2])))
    assert outputs["turn"][mask].tolist() == [0.0, 1.0, 0.0, 1.0]


def test_what_is_lined_up_is_put_back() -> None:
    mask = torch.tensor([[True, False, True]])
    outputs = outputs_of("put_back", "default", batch_of(mask, value=torch.tensor([[1.0, 2.0, 3.0]])))
    assert outputs["advantage"].tolist() == [[1.0, 0.0, 3.0]]


def test_outcomes_of_trajectories() -> None:
    """Two steps of one with outcome 1, and one of another with 0: a half either way."""
    batch = batch_of(
        torch.ones(3, 1).bool(),
        reward=torch.tensor([9.0, 1.0, 0.0]),
        trajectory=torch.tensor([2, 2, 1]),
        last_step=torch.tensor([False, True, True]),
    )
    outputs = outputs_of("over_trajectories", "grpo", batch)
    assert outputs["advantage"].tolist() == [0.5, 0.5, -0.5]
