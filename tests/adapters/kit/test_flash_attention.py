"""Fakes of flash-attention's functions for padding."""

import torch

from rl_sentinel.adapters.kit.flash_attention import pad_input, unpad_input


def test_padding_is_removed_and_put_back() -> None:
    """Padding at both sides; offsets are int32, as the kernels require."""
    mask = torch.tensor([[0, 1, 1], [1, 0, 0]])
    hidden = torch.arange(6.0).view(2, 3, 1)
    tokens, places, offsets, longest, lengths = unpad_input(hidden, mask)
    assert (tokens.flatten().tolist(), places.tolist(), longest, lengths.tolist()) == ([1, 2, 3], [1, 2, 3], 2, [2, 1])
    assert (offsets.tolist(), offsets.dtype) == ([0, 2, 3], torch.int32)
    assert pad_input(tokens, places, 2, 3).flatten().tolist() == [0, 1, 2, 3, 0, 0]
