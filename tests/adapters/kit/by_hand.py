"""One batch of two responses, written by hand, and the check of a codec against a value written by hand."""

from collections.abc import Mapping
from typing import Any

import torch

from rl_sentinel.core.batch import batch_of
from rl_sentinel.core.call import same_value
from rl_sentinel.core.codec import Codec, Inputs, Sizes

LENGTH, PROMPT = torch.tensor([3, 1]), torch.tensor([1, 2])
MASK = torch.tensor([[True, False, True], [True, False, False]])
SIZES = Sizes(rows=2, width=3, length=LENGTH, prompt_length=PROMPT, mask=MASK)

#: Prompts of one and of two tokens, responses of three and of one.
BATCH = batch_of(
    MASK,
    length=LENGTH,
    prompt_length=PROMPT,
    group=torch.tensor([7, 3]),
    last_step=torch.tensor([True, False]),
    step=torch.tensor([0, 4]),
    token=torch.tensor([[5, 6, 7], [8, 0, 0]]),
    version=torch.tensor([[4, 5, 5], [6, 0, 0]]),
    reward=torch.tensor([1.5, -2.0]),
    reward_parts=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    token_reward=torch.tensor([[0.25, 0.0, 0.5], [0.0, 0.0, 0.0]]),
    logprob=torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -9.0, -9.0]]),
)


def check_by_hand(codec: Codec, value: object, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """``put`` gives the value, and ``take`` gives the columns and ``knobs`` the settings that are written beside it."""
    assert same_value(codec.put(Inputs(BATCH, dict(settings))), value), codec.put(Inputs(BATCH, dict(settings)))
    read = codec.take(value, codec.sizes(value).merge(SIZES))
    assert {name: column.tolist() for name, column in read.items()} == dict(columns)
    assert codec.knobs(value) == dict(settings)
    assert codec.columns == set(columns) | set(codec.unreadable)
