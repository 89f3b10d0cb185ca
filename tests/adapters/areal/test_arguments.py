"""Arguments of AReaL: the tensors of a rollout, packed columns of a loss, groups by position."""

import pytest
import torch

from rl_sentinel.adapters.areal.arguments import (
    GroupSize,
    knob,
    packed,
    padded_to_longest,
    rollout,
    unfinished_are_longest,
)
from rl_sentinel.core.batch import Batch, batch_of
from rl_sentinel.core.codec import Inputs, Sizes
from rl_sentinel.core.layout import Layout


def _batch(**more: torch.Tensor) -> Batch:
    """Prompts of one and of two tokens, responses of three and of one."""
    columns = {
        "prompt_length": torch.tensor([1, 2]),
        "length": torch.tensor([3, 1]),
        "reward": torch.tensor([0.5, 2.0]),
        "token": torch.tensor([[3, 4, 6], [5, 0, 0]]),
        "version": torch.tensor([[7, 7, 8], [8, 0, 0]]),
        "old_logprob": torch.tensor([[-1.0, -2.0, -7.0], [-3.0, 0.0, 0.0]]),
        "ref_logprob": torch.tensor([[-4.0, -5.0, -8.0], [-6.0, 0.0, 0.0]]),
    }
    mask = torch.tensor([[True, False, True], [True, False, False]])
    return batch_of(mask, **(columns | more))


def test_a_rollout_is_padded_to_its_longest_sequence() -> None:
    """Columns of the sampler stand at their token, a forward pass one position earlier; no column is spare."""
    data = rollout("ref_logp").put(Inputs(_batch()))
    assert data["input_ids"].tolist() == [[0, 3, 4, 6], [0, 0, 5, 0]]
    assert data["input_ids"].dtype == torch.int32
    assert data["attention_mask"].tolist() == [[True, True, True, True], [True, True, True, False]]
    assert data["loss_mask"].tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]
    assert data["versions"].tolist() == [[-1, 7, 7, 8], [-1, -1, 8, 0]]
    assert data["rewards"].tolist() == [0.5, 2.0]
    assert data["logprobs"].tolist() == [[0.0, -1.0, -2.0, -7.0], [0.0, 0.0, -3.0, 0.0]]
    assert data["ref_logp"].tolist() == [[-4.0, -5.0, -8.0, -0.5], [-0.5, -6.0, -0.5, 0.0]]


def test_a_loss_has_packed_sequences() -> None:
    """Prompt positions hold log-probs as well, and train nothing."""
    inputs = Inputs(_batch())
    assert packed("old_logprob").put(inputs).tolist() == [-1.0, -2.0, -7.0, -0.5, -0.5, -3.0, -0.5]
    assert packed("mask").put(inputs).tolist() == [True, False, True, False, False, True, False]


def test_group_size_is_that_of_the_largest_group() -> None:
    """A group may lack a trajectory that failed."""
    mask = torch.ones(3, 1, dtype=torch.bool)
    assert GroupSize().put(Inputs(batch_of(mask, group=torch.tensor([5, 5, 2])))) == 2
    assert GroupSize().take(2, Sizes(rows=3))["group"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("length", "reason"), [(3, ""), (2, "a response without EOS is shorter than another")])
def test_a_response_without_eos_is_a_longest_one(length: int, reason: str) -> None:
    """It ended at max_new_tokens, which no other response exceeds."""
    batch = _batch(length=torch.tensor([3, length]), scored=torch.tensor([True, False]))
    assert unfinished_are_longest(Inputs(batch)).startswith(reason)
    assert bool(unfinished_are_longest(Inputs(batch))) == bool(reason)


def test_settings_in_the_words_of_the_configuration() -> None:
    """A level of a statistic belongs to its normalization."""
    assert knob("kl_ctl", 0.0) == "actor.kl_ctl=0.0"
    assert knob("reward mean", "group") == "actor.reward_norm.mean_level=group"
    assert knob("adv std", None) == "actor.adv_norm.std_level=None"
    assert knob("reward leave1out", value=True) == "actor.reward_norm.mean_leave1out=True"


def test_no_spare_column_is_given() -> None:
    """A sequence that fills the width is one without EOS."""
    assert padded_to_longest(Inputs(_batch())) == ""
    assert padded_to_longest(Inputs(_batch(), layout=Layout(extra=1))).startswith("the layout has more padding")
