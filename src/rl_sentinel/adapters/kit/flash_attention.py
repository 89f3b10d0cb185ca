"""Replace flash-attention's functions that remove and restore padding, because the package needs a GPU."""

import torch
from torch import Tensor


def unpad_input(hidden_states: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """Like flash-attention's ``unpad_input``, return the attended tokens and their places.

    Returns:
        attended tokens, their positions, cumulative lengths, longest length, lengths.
    """
    lengths = attention_mask.sum(1, dtype=torch.int32)
    places = attention_mask.flatten().nonzero().flatten()
    offsets = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[places], places, offsets, int(lengths.max()), lengths


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """Like flash-attention's ``pad_input``, return ``[batch, seqlen, ...]``: the tokens at their positions, else 0."""
    padded = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    padded[indices] = hidden_states
    return padded.view(batch, seqlen, *hidden_states.shape[1:])
