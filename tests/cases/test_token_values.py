"""Rewards per token, by hand."""

import torch

from rl_sentinel.cases.token_values import VALUES
from rl_sentinel.core.batch import batch_of


def test_where_an_outcome_stands() -> None:
    """At the last token of the response, or at the last one that is trained; a dead row has none of these."""
    mask = torch.tensor([[True, False, False], [False, False, False]])
    batch = batch_of(mask, reward=torch.tensor([2.0, 5.0]), length=torch.tensor([2, 3]))
    found = {name: next(iter(make(batch, {}).values())).tolist() for name, make in VALUES.items()}
    assert found["outcome at the last trained token"] == [[2, 0, 0], [0, 0, 0]]
    assert found["outcome at the last response token"] == [[0, 2, 0], [0, 0, 5]]
