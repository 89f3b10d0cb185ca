"""Mini-batches of prompts in turn, by hand."""

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.formulas.mini_batches import COUNTS_OF_MINI_BATCHES, MINI_BATCHES


def test_mini_batches_by_hand() -> None:
    """Prompts 7, 3 and 5 in the order of their first rows, two at a time."""
    batch = batch_of(torch.ones(4, 1).bool(), group=torch.tensor([7, 3, 7, 5]))
    assert MINI_BATCHES["mini-batches of prompts in turn"](batch, {"prompts": 2}).tolist() == [0, 0, 0, 1]
    assert COUNTS_OF_MINI_BATCHES["mini-batches"](batch, {"prompts": 2}).item() == 2
    assert COUNTS_OF_MINI_BATCHES["prompts of the largest mini-batch"](batch, {"prompts": 2}).item() == 2
    assert COUNTS_OF_MINI_BATCHES["prompts of the largest mini-batch"](batch, {"prompts": 9}).item() == 3
