"""Full sequences as AReaL's actor gets them: what stands where, who fills the width, which groups there are."""

import pytest
import torch

from rl_sentinel.adapters.areal.sequences import group_size, sequences, spare
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.errors import NotApplicable


def test_each_column_stands_where_the_actor_reads_it() -> None:
    """Behind prompts of one and of two tokens, and a spare place; the trainer's own passes one place earlier."""
    mask = torch.tensor([[True, True], [True, False]])
    found = sequences(
        batch_of(
            mask,
            prompt_length=torch.tensor([1, 2]),
            length=torch.tensor([2, 1]),
            reward=torch.tensor([0.5, 2.0]),
            token=torch.tensor([[3, 4], [5, 0]]),
            old_logprob=torch.tensor([[-1.0, -2.0], [-3.0, 0.0]]),
            ref_logprob=torch.tensor([[-4.0, -5.0], [-6.0, 0.0]]),
        )
    )
    assert found["input_ids"][0, 1:3].tolist() == [3, 4]
    assert found["input_ids"][1, 2].item() == 5
    assert found["attention_mask"].tolist() == [[True, True, True, False, False]] * 2
    assert found["loss_mask"].tolist() == [[0, 1, 1, 0, 0], [0, 0, 1, 0, 0]]
    assert found["rewards"].tolist() == [0.5, 2.0]
    assert found["logprobs"].tolist() == [[0.0, -1.0, -2.0, 0.0, 0.0], [0.0, 0.0, -3.0, 0.0, 0.0]]
    assert found["ref_logp"].tolist() == [[-4.0, -5.0, 0.0, 0.0, 0.0], [0.0, -6.0, 0.0, 0.0, 0.0]]


def test_who_fills_the_width() -> None:
    """With every row scored one column is spare; without, the unscored row fills the width alone."""
    mask = torch.ones(2, 3, dtype=torch.bool)
    scored = batch_of(mask)
    assert spare(scored) == 1
    assert sequences(scored)["input_ids"].shape == (2, 5)
    one_open = batch_of(mask, scored=torch.tensor([True, False]), length=torch.tensor([2, 3]))
    full = sequences(one_open)
    assert full["attention_mask"].tolist() == [[True, True, True, False], [True] * 4]
    with pytest.raises(NotApplicable, match="as long as an unscored one"):
        sequences(batch_of(mask, scored=torch.tensor([True, False])))


def test_groups_by_position() -> None:
    """Groups of one size that stand together have a size; others are not what AReaL can be given."""
    mask = torch.ones(4, 1, dtype=torch.bool)
    assert group_size(batch_of(mask, group=torch.tensor([5, 5, 2, 2]))) == 2
    for group in ([0, 1, 0, 1], [0, 0, 0, 1]):
        with pytest.raises(NotApplicable, match="groups by position"):
            group_size(batch_of(mask, group=torch.tensor(group)))
