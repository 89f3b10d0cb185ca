"""What a path lays out per token, per row and for the batch, by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.path_quantities import COUNTS, LAID_OUT, ORDERED


def test_trained_tokens_before() -> None:
    batch = batch_of(torch.tensor([[True, False, True]]))
    assert ORDERED["trained tokens before"](batch, {}).tolist() == [[0, 1, 1]]


def test_newest_weights_are_no_update_behind() -> None:
    assert LAID_OUT["newest weights"](batch_of(torch.ones(3, 2).bool()), {}).tolist() == [0, 0, 0]


def test_counts_by_hand() -> None:
    """Rewards after the response do not count."""
    batch = batch_of(
        torch.ones(5, 2).bool(), length=torch.tensor([2, 1, 1, 1, 1]), token_reward=torch.full((5, 2), 0.5)
    )
    assert COUNTS["trained tokens"](batch, {}).item() == 10
    assert COUNTS["token rewards of responses"](batch, {}).item() == 3.0
