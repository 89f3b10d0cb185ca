"""What frameworks hand over, in our words: labels, aggregations and what is logged."""

import numpy as np
import pytest
import torch

from rl_sentinel.remedies.framework_inputs import Update, aggregation_of, per_token, responses
from rl_sentinel.signal.loss import ppo
from rl_sentinel.signal.reduce import Aggregation

MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_responses_and_tokens() -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.25], [7.0, 0.0, 0.0]])
    asked = responses(rewards, mask=MASK, index=np.array(["q", "p", "q"], dtype=object), by_deviation=False)
    assert asked.reward.tolist() == [1.0, 0.75, 7.0]
    assert asked.arguments["group"].tolist() == [1, 0, 1]
    assert asked.arguments["live"].tolist() == [True, True, False]
    assert asked.length.tolist() == [2, 1, 0]
    found, returns = per_token(asked.reward, mask=MASK)
    assert found is returns
    assert found.tolist() == [[1.0, 1.0, 0.0], [0.75, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("mode", "counts", "wanted"),
    [
        ("token-mean", {}, Aggregation("token-mean", 3.0)),
        (
            "token-mean",
            {"batch_num_tokens": 12, "dp_size": 2, "global_batch_size": None},
            Aggregation("token-mean", 6.0),
        ),
        ("token-sum", {"dp_size": 4}, Aggregation("token-sum", 0.25)),
        ("seq-mean-token-sum", {}, Aggregation("sequence-mean-token-sum", 2.0)),
        ("seq-mean-token-mean", {"global_batch_size": 8}, Aggregation("sequence-mean-token-mean", 8.0)),
        ("seq-mean-token-sum-norm", {"global_batch_size": 8}, Aggregation("sequence-mean-token-sum", 24.0)),
        ("seq-mean-token-sum-norm", {"loss_scale_factor": 10}, Aggregation("sequence-mean-token-sum", 20.0)),
    ],
)
def test_aggregations(mode: str, counts: dict[str, int | None], wanted: Aggregation) -> None:
    assert aggregation_of(MASK, mode, **counts) == wanted


def test_an_aggregation_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^loss_agg_mode is 'mean', expected one of token-mean, token-sum, "):
        aggregation_of(MASK, "mean")


def test_a_micro_batch_without_tokens() -> None:
    assert aggregation_of(torch.zeros(2, 2).bool(), "token-mean").denominator == 1.0


def test_an_update_and_what_is_logged() -> None:
    """The loss by hand; half of the tokens are cut; the mean of k1 from the old policy."""
    now = torch.tensor([[0.5, 0.0, torch.nan]]).log()
    asked = Update(
        now, torch.tensor([[0.25, 1.0, 0.0]]).log(), torch.ones(1, 3), MASK[:1], Aggregation("token-sum", 1.0), None
    )
    now[0, 1] = torch.tensor(0.9).log()
    assert asked.loss(ppo.loss, clip_low=0.2, clip_high=0.2).item() == pytest.approx(-1.2 - 0.9)
    assert asked.clipped(clip_low=0.2, clip_high=0.2) == 0.5
    assert asked.moved() == pytest.approx((np.log(0.25 / 0.5) + np.log(1.0 / 0.9)) / 2)
