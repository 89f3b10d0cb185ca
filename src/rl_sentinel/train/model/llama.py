"""A Llama of any size in plain torch; its parameters have the names of transformers' Llama."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from rl_sentinel.core.errors import SentinelError
from rl_sentinel.train.model.device import CPU
from rl_sentinel.train.model.readout import Readout, logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model; ``positions`` is the longest sequence, in tokens."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    base: float = 10_000.0


@dataclass(slots=True)
class Cache:
    """The KV cache: keys and values ``[B, H, K, D]`` per layer.

    Without gradients they are written into buffers for ``width`` tokens; with gradients they are concatenated, since
    autograd needs the earlier tensors unchanged.
    """

    width: int
    read: int = 0
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens, and return all keys and values of the layer."""
        if torch.is_grad_enabled():
            if self.read:
                before = self.layers[layer]
                key, value = torch.cat((before[0], key), dim=2), torch.cat((before[1], value), dim=2)
            self.layers[layer : layer + 1] = [(key, value)]
            return key, value
        if layer == len(self.layers):
            rows, heads, _, size = key.shape
            self.layers.append(
                (key.new_empty(rows, heads, self.width, size), key.new_empty(rows, heads, self.width, size))
            )
        end = self.read + key.shape[2]
        for buffer, new in zip(self.layers[layer], (key, value), strict=True):
            buffer[:, :, self.read : end] = new
        return self.layers[layer][0][:, :, :end], self.layers[layer][1][:, :, :end]

    def select(self, rows: Int[Tensor, " n"]) -> None:
        """Keep only these rows, in this order; a row may be repeated.

        Indexing has a reproducible gradient. On CUDA the gradient of ``index_select`` adds repeated rows in a random
        order.
        """
        self.layers = [(key[rows], value[rows]) for key, value in self.layers]


class Attention(nn.Module):
    """Causal attention with rotary position embeddings."""

    def __init__(self, shape: Shape, number: int) -> None:
        """Build four square projections without bias; ``number`` is the index of the layer, counted from 0."""
        super().__init__()
        self.heads, self.number = shape.heads, number
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(shape.hidden, shape.hidden, bias=False) for _ in range(4)
        )

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], attention_mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """Each position attends to itself and to earlier positions, or only to those in ``attention_mask``."""
        rows, width, size = x.shape
        split = (rows, width, self.heads, size // self.heads)
        query, key, value = (f(x).view(split) for f in (self.q_proj, self.k_proj, self.v_proj))
        query, key = _rotate(query, rotation), _rotate(key, rotation)
        query, key, value = (column.transpose(1, 2) for column in (query, key, value))
        if cache is not None:
            key, value = cache.append(self.number, key, value)
        causal = attention_mask is None and width > 1
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, is_causal=causal)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, width, size))  # type: ignore[no-any-return]  # modules are untyped


class FeedForward(nn.Module):
    """The gated MLP (SwiGLU)."""

    def __init__(self, shape: Shape) -> None:
        """Build two projections up and one down, without bias."""
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]  # as above


class Layer(nn.Module):
    """A transformer block: attention, then the MLP, each with a norm before it and a residual connection."""

    def __init__(self, shape: Shape, number: int) -> None:
        """Build the layer with the index ``number``, counted from 0."""
        super().__init__()
        self.self_attn, self.mlp = Attention(shape, number), FeedForward(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], attention_mask: Tensor | None, cache: Cache | None
    ) -> Tensor:
        """Transform each position; the arguments are the same as for ``Attention.forward``."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, attention_mask, cache)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]  # as above


class Trunk(nn.Module):
    """All layers except the output projection."""

    def __init__(self, shape: Shape) -> None:
        """Build the embedding, the layers and the final norm."""
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, number) for number in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)


class Llama(nn.Module):
    """A causal language model: logits of the next token at each position."""

    def __init__(self, shape: Shape) -> None:
        """Draw the weights with standard deviation 0.02; norms start at 1."""
        super().__init__()
        self.shape, self.recompute = shape, False
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        size = shape.hidden // shape.heads
        rate = shape.base ** (-torch.arange(0, size, 2, device=CPU) / size)
        angle = torch.outer(torch.arange(shape.positions, device=CPU), rate)
        self.register_buffer("cosine", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sine", torch.cat((-angle.sin(), angle.sin()), dim=1), persistent=False)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=0.02)

    def forward(
        self,
        token: Int[Tensor, "B S"],
        *,
        key_mask: Bool[Tensor, "B K"] | None = None,
        cache: Cache | None = None,
        last: bool = False,
        of: Readout = logits,
    ) -> Float[Tensor, "..."]:
        """Logits of the next token at each position, ``[B, S, V]``, or the result of ``of``.

        Args:
            token: token ids.
            key_mask: True for keys (first those in the cache, then the new ones) that are tokens, False for padding;
                None if there is padding only on the right, which no earlier position attends to.
            cache: the KV cache of earlier tokens; it is extended in place.
            last: compute the result at the last position only, ``[B, 1, V]``.
            of: computes the result from hidden states ``[B, S, D]`` and the weight of the output projection.

        Returns:
            Logits, in nats up to a constant per position.

        Raises:
            SentinelError: if a sequence is longer than ``Shape.positions``.
        """
        width, read = token.shape[1], 0 if cache is None else cache.read
        if key_mask is None and read and width > 1:
            key_mask = torch.ones(1, read + width, dtype=torch.bool, device=token.device)
        attention_mask = None if key_mask is None else _attention_mask(key_mask, width)
        positions = slice(read, read + width) if key_mask is None else (key_mask.cumsum(1)[:, -width:] - 1).clamp(min=0)
        if read + width > self.shape.positions:  # some keys may be padding, which takes no position
            self._require_positions(positions)
        rotation = self.cosine[positions].unsqueeze(-2), self.sine[positions].unsqueeze(-2)  # type: ignore[index]  # buffers are tensors
        x = self.model.embed_tokens(token)
        recompute = self.recompute and cache is None and torch.is_grad_enabled()
        for layer in self.model.layers:
            arguments = (x, rotation, attention_mask, cache)
            x = checkpoint(layer, *arguments, use_reentrant=False) if recompute else layer(*arguments)
        if cache is not None:
            cache.read += width
        return of(self.model.norm(x[:, -1:] if last else x), self.lm_head.weight)

    def _require_positions(self, positions: slice | Tensor) -> None:
        most = self.shape.positions
        length = positions.stop if isinstance(positions, slice) else int(positions.max()) + 1
        if length > most:
            raise SentinelError(f"policy.positions is {most}, expected {length} or more for this sequence")

    def enable_recompute(self) -> None:
        """Compute layers again for the gradient of whole sequences, instead of keeping their inner values."""
        self.recompute = True

    @property
    def head(self) -> Tensor:
        """The weight of the output projection."""
        return self.lm_head.weight

    def replace_head(self, head: nn.Linear) -> None:
        """Replace the output projection."""
        self.lm_head = head

    @property
    def layers(self) -> list[nn.Module]:
        """The layers, which FSDP shards one by one."""
        return list(self.model.layers)

    def new_cache(self, width: int) -> Cache:
        """An empty KV cache for sequences of up to ``width`` tokens."""
        return Cache(width)


def _rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of numbers that are half a head apart; the sine has the sign of each half."""
    return x * rotation[0] + x.roll(x.shape[-1] // 2, dims=-1) * rotation[1]


def _attention_mask(key_mask: Tensor, width: int) -> Tensor:
    """True for the keys that each of the last ``width`` positions attends to.

    Padding attends to itself, since a row of the softmax without any key is NaN.
    """
    if width == 1:
        return key_mask[:, None, None, :]
    key = torch.arange(key_mask.shape[1], device=key_mask.device)
    query = key[-width:].unsqueeze(1)
    return ((key_mask.unsqueeze(1) & (key <= query)) | (key == query)).unsqueeze(1)
