"""Fakes of the kernels of recurrent layers (flash-linear-attention), whose state starts anew where a sequence does."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

#: The width of the hidden states.
WIDTH = 4


def spans(cu_seqlens: Tensor | None, count: int) -> Iterator[slice]:
    """The places of each sequence of a pack; without their boundaries, all tokens are one sequence."""
    ends = [0, count] if cu_seqlens is None else cu_seqlens.tolist()
    yield from map(slice, ends, ends[1:])


def delta_rule(  # noqa: PLR0913 - as the kernel
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    g: Tensor,
    beta: Tensor,
    cu_seqlens: Tensor | None = None,
    **_about: object,
) -> tuple[Tensor, None]:
    """The gated delta rule on ``[1, N, heads, width]``: a state per head decays, is corrected, and is read."""
    out = torch.zeros_like(value)
    for place in spans(cu_seqlens, value.shape[1]):
        state = value.new_zeros(value.shape[2], key.shape[3], value.shape[3])
        for token in range(place.start, place.stop):
            k, v = key[0, token].tanh(), value[0, token]
            state = state * g[0, token].exp()[:, None, None]
            change = (v - (state * k[:, :, None]).sum(1)) * beta[0, token][:, None]
            state = state + k[:, :, None] * change[:, None, :]
            out[0, token] = (state * query[0, token][:, :, None]).sum(1)
    return out, None


class ShortConvolution(nn.Module):
    """A fake of the convolution of neighboring tokens, which starts anew with each sequence."""

    def __init__(self, *_sizes: int, **_options: object) -> None:
        """Accept any options; the kernel is fixed."""
        super().__init__()

    def forward(self, x: Tensor, cu_seqlens: Tensor | None = None, **_options: object) -> tuple[Tensor, None]:
        """Each token ``[1, N, width]`` plus half of the token before it in its sequence."""
        before = torch.zeros_like(x)
        for place in spans(cu_seqlens, x.shape[1]):
            before[:, place.start + 1 : place.stop] = x[:, place.start : place.stop - 1]
        return x + before / 2, None


class GatedNorm(nn.Module):
    """A fake of a gated norm, without the norm."""

    def __init__(self, *_sizes: int, **_options: object) -> None:
        """Accept any options."""
        super().__init__()

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """The gated input."""
        return x * gate.sigmoid()


def embedded(tokens: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Hidden states ``[N, WIDTH]`` of the packed tokens of padded rows, and the boundaries of the sequences."""
    ids = torch.cat([row[:length] for row, length in zip(tokens, lengths, strict=True)])
    waves = (ids + 1).unsqueeze(-1) * torch.arange(1, WIDTH + 1)
    return 3 * waves.float().sin(), torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def as_rows(outputs: Tensor, boundaries: Tensor, width: int) -> Tensor:
    """One number per token: the weighted sum of the outputs ``[N, WIDTH]``, as rows that are padded with 0."""
    numbers = outputs @ torch.arange(1.0, WIDTH + 1)
    parts = [numbers[place] for place in spans(boundaries, len(numbers))]
    return torch.stack([nn.functional.pad(part, (0, width - len(part))) for part in parts])


def configuration(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a configuration of transformers
    """Fields of the configuration of a model with such layers."""
    return {
        "hidden_size": WIDTH,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": 2,
        "linear_value_head_dim": 2,
        "linear_conv_kernel_dim": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "dtype": torch.float32,
        **more,
    }
