"""What is laid out anew, by hand."""

import math

import pytest
import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.layouts import COUNTS, LAID_OUT, ORDERED

MASK = torch.tensor([[True, False]])


def test_words_by_hand() -> None:
    """Logits 2 ln 3, 0, 0 at temperature 2 are shares 3/5, 1/5, 1/5; nothing where nothing trains; with a slope."""
    logits = torch.tensor([[[2 * math.log(3), 0.0, 0.0], [9.0, 9.0, 9.0]]], requires_grad=True)
    batch = batch_of(MASK, logits=logits, token=torch.tensor([[1, 0]]))
    found = LAID_OUT["log-prob of the token"](batch, {"temperature": 2.0})
    assert found.flatten().tolist() == pytest.approx([math.log(0.2), 0.0])
    (slope,) = torch.autograd.grad(found.sum(), logits)
    assert slope.flatten().tolist() == pytest.approx([-0.3, 0.4, -0.1, 0, 0, 0], abs=1e-6)
    spread = LAID_OUT["entropy of the logits"](batch, {"temperature": 2.0})
    assert spread.flatten().tolist() == pytest.approx([-0.6 * math.log(0.6) - 0.4 * math.log(0.2), 0.0])
    mean = COUNTS["mean entropy of trained tokens at the temperature"](batch, {"temperature": 2.0})
    assert mean.item() == pytest.approx(spread.sum().item())


def test_trained_tokens_before() -> None:
    batch = batch_of(torch.tensor([[True, False, True]]))
    assert ORDERED["trained tokens before"](batch, {}).tolist() == [[0, 1, 1]]


def test_mini_batches_by_hand() -> None:
    """Prompts 7, 3 and 5 in the order of their first rows, two at a time."""
    batch = batch_of(torch.ones(4, 1).bool(), group=torch.tensor([7, 3, 7, 5]))
    assert LAID_OUT["mini-batches of prompts in turn"](batch, {"prompts": 2}).tolist() == [0, 0, 0, 1]
    assert COUNTS["mini-batches"](batch, {"prompts": 2}).item() == 2
    assert COUNTS["prompts of the largest mini-batch"](batch, {"prompts": 2}).item() == 2
    assert COUNTS["prompts of the largest mini-batch"](batch, {"prompts": 9}).item() == 3


def test_outcomes_of_trajectories_by_hand() -> None:
    """Outcomes 3 and 1 about 2: the first at both of its steps, nothing at the dead one of the second's; one alone."""
    batch = batch_of(
        torch.tensor([[True], [True], [False], [True], [True]]),
        reward=torch.tensor([9.0, 3.0, 9.0, 1.0, 4.0]),
        group=torch.tensor([0, 0, 0, 0, 1]),
        trajectory=torch.tensor([5, 5, 2, 2, 8]),
        last_step=torch.tensor([False, True, False, True, True]),
    )
    assert LAID_OUT["outcomes of trajectories, centred"](batch, {}).tolist() == [1, 1, 0, -1, 0]


def test_newest_weights_are_no_update_behind() -> None:
    assert LAID_OUT["newest weights"](batch_of(torch.ones(3, 2).bool()), {}).tolist() == [0, 0, 0]


def test_merged_turns_by_hand() -> None:
    """Five turns that forget after every second are three sequences; rewards after the response do not count."""
    batch = batch_of(
        torch.ones(5, 2).bool(), length=torch.tensor([2, 1, 1, 1, 1]), token_reward=torch.full((5, 2), 0.5)
    )
    assert COUNTS["sequences after merging"](batch, {"forgets": 2}).item() == 3
    assert COUNTS["sequences after merging"](batch, {"forgets": 0}).item() == 1
    assert COUNTS["turns"](batch, {}).item() == 5
    assert COUNTS["trained tokens"](batch, {}).item() == 10
    assert COUNTS["token rewards of responses"](batch, {}).item() == 3.0
