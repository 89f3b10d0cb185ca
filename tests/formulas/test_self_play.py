"""Losses of self-play, against numbers worked out by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.self_play import nash_md, regressed_advantage


def test_penalty_has_a_gradient_by_its_log_ratio() -> None:
    """A response that wins always, with a log-ratio of 1: 0.25 of it less a half, times the log-prob."""
    logprob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    batch = batch_of(
        torch.tensor([[1, 0]]).bool(), reward=torch.ones(1), logprob=logprob, ref_logprob=torch.tensor([[-2.0, 0.0]])
    )
    readings = nash_md(batch, {"beta": 0.25})
    assert {n: tokens.tolist() for n, tokens in readings.items()} == {
        "of each token": [[0.25, 0.0]],
        "of the response": [[0.25, 0.0]],
    }
    readings["of each token"].sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert logprob.grad is not None
    assert logprob.grad.tolist() == [[-0.25, 0.0]]


def test_regression_is_shared_by_the_tokens() -> None:
    """Half of a log-ratio of 4 is 2, the advantage is 1 - 2 = -1: the square of 3, on two tokens."""
    batch = batch_of(
        torch.tensor([[1, 1, 0]]).bool(),
        reward=torch.ones(1),
        reward_baseline=torch.tensor([2.0]),
        logprob=torch.tensor([[-1.0, -1.0, -9.0]]),
        ref_logprob=torch.tensor([[-3.0, -3.0, 0.0]]),
    )
    assert regressed_advantage(batch, {"beta": 0.5})[""].tolist() == [[4.5, 4.5, 0.0]]
