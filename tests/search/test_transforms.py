"""Transforms that move an outcome and deal groups."""

import torch

from rl_sentinel.search.filled_batch import filled
from rl_sentinel.search.transforms import interleaved, outcome_moved


def test_outcome_is_moved_wherever_it_is_read() -> None:
    batch = filled([[1], [1]], reward=[1, 0], group=[0, 0])
    first = torch.tensor([True, False])
    both = outcome_moved(batch, {"reward", "reward_parts", "mask"}, first, 2.0)
    assert (both.reward - batch.reward).tolist() == [2.0, 0.0]
    assert (both.reward_parts - batch.reward_parts).tolist() == [[2.0, 2.0], [0.0, 0.0]]
    one = outcome_moved(batch, {"reward"}, first, 2.0)
    assert torch.equal(one.reward_parts, batch.reward_parts)


def test_interleaved_deals_one_row_of_each_group() -> None:
    assert interleaved(torch.tensor([4, 4, 4, 2, 2])).tolist() == [0, 3, 1, 4, 2]
    assert interleaved(torch.tensor([0, 1, 0])).tolist() == [0, 1, 2]
