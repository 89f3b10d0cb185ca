"""Readouts: logits, and hidden states as they are."""

import pytest
import torch

from rl_sentinel.train.model.readout import logits, unchanged
from training import recipe, sample_episodes

STATES, WEIGHT = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]])


def test_readouts() -> None:
    assert logits(STATES, WEIGHT).tolist() == [[1.0, -2.0, 3.0]]
    assert logits(STATES, None) is STATES
    assert unchanged(STATES, WEIGHT) is STATES


@pytest.mark.on_cpu
def test_a_model_reads_out_what_is_asked() -> None:
    _, policy, _ = sample_episodes(recipe())
    token = torch.tensor([[5, 6, 7]])
    states = policy(token, of=unchanged)
    assert states.shape == (1, 3, policy.model.shape.hidden)  # type: ignore[union-attr]  # a Llama's
    assert torch.equal(policy.read(states, logits), policy(token))
