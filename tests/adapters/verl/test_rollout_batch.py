"""The rows of verl's rollout by hand: prompts of one token and of two, responses of two and of one."""

import torch

from rl_sentinel.adapters.verl.rollout_batch import position_step
from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.codec import Inputs
from rl_sentinel.core.layout import Layout

BATCH = batch_of(
    torch.tensor([[True, True], [True, False]]), length=torch.tensor([2, 1]), prompt_length=torch.tensor([1, 2])
)


def test_attention_covers_prompt_and_response() -> None:
    """Prompts end, and responses begin, at the same place; a further column of padding comes from the layout."""
    rows = position_step().arguments["rows"].put(Inputs(BATCH, {}, Layout(extra=1)))
    assert rows["attention_mask"].tolist() == [[0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0]]


def test_lengths_are_read_from_the_attention_mask() -> None:
    codec = position_step().arguments["rows"]
    sizes = codec.sizes(codec.put(Inputs(BATCH, {}, Layout())))
    assert sizes.length is not None
    assert sizes.prompt_length is not None
    assert (sizes.length.tolist(), sizes.prompt_length.tolist()) == ([2, 1], [1, 2])
