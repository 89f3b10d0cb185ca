"""Codecs of rewards on values written by hand: 1.5 and -2 for the responses, 0.25 and 0.5 on tokens of the first."""

import numpy as np
import pytest
import torch

from adapters.kit.by_hand import BATCH, SIZES, check_by_hand
from rl_sentinel.adapters.kit.containers import Table
from rl_sentinel.adapters.kit.forms import Ragged
from rl_sentinel.adapters.kit.observation import observe
from rl_sentinel.adapters.kit.reward_codecs import Part, PerRowOutcome, TokenRewards
from rl_sentinel.core.boundary import Step
from rl_sentinel.core.codec import Codec, Inputs

MERGED = {"reward": [2.0, -2.0], "token_reward": [[0.25, 0.0, 0.0], [0.0, 0.0, 0.0]]}
WHOLE = torch.tensor([[0.25, 0.0, 2.0], [-2.0, 0.0, 0.0]])
OUTCOMES = torch.tensor([[0.0, 0.0, 1.5], [-2.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("codec", "value", "columns"),
    [
        (TokenRewards(), WHOLE, MERGED),
        (TokenRewards(Ragged()), [WHOLE[0], WHOLE[1, :1]], MERGED),
        (PerRowOutcome(), OUTCOMES, {"reward": [1.5, -2.0]}),
    ],
)
def test_rewards_on_tokens(codec: Codec, value: torch.Tensor, columns: dict[str, list[float]]) -> None:
    """All that stands at the last token is outcome, unless the outcome stands alone."""
    check_by_hand(codec, value, columns, {})
    assert {name: column.tolist() for name, column in codec.canonical(BATCH).items()} == columns


def test_both_rewards_in_one_call() -> None:
    """The outcome alone tells what of the last token is paid for the token."""
    table = Table({"rewards": TokenRewards(), "mask": PerRowOutcome()})
    live = {"rewards": WHOLE, "mask": OUTCOMES}
    columns = table.take(live, table.sizes(live).merge(SIZES))
    assert columns["reward"].tolist() == [1.5, -2.0]
    assert columns["token_reward"].tolist() == [[0.25, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_parts_of_a_reward() -> None:
    """Each argument has one; together they are the column."""
    parts = {"first": Part(0), "second": Part(1)}
    live = {"first": np.array([1.0, 3.0], dtype=np.float32), "second": np.array([2.0, 4.0], dtype=np.float32)}
    assert {name: part.put(Inputs(BATCH)).tolist() for name, part in parts.items()} == {
        "first": [1.0, 3.0],
        "second": [2.0, 4.0],
    }
    observed = observe(Step(call="m.f", arguments=parts), live)
    assert observed.columns["reward_parts"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
