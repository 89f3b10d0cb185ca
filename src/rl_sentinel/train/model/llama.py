"""A Llama of any size in plain torch; its parameters have the names that transformers gives them."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from rl_sentinel.core.errors import SentinelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model; ``positions`` is the longest sequence, in tokens."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    base: float = 10_000.0


@dataclass(slots=True)
class Cache:
    """Keys and values of the tokens read so far, a pair ``[B, H, K, D]`` per layer.

    Without a gradient they lie in memory made once, for ``width`` tokens; with one they are joined anew.
    """

    width: int
    read: int = 0
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def grown(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of a layer, with those of the tokens at hand written behind them."""
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
        for kept, new in zip(self.layers[layer], (key, value), strict=True):
            kept[:, :, self.read : end] = new
        return self.layers[layer][0][:, :, :end], self.layers[layer][1][:, :, :end]

    def keep(self, rows: Int[Tensor, " n"]) -> None:
        """Go on with these rows alone; one that is named twice is there twice."""
        self.layers = [(key.index_select(0, rows), value.index_select(0, rows)) for key, value in self.layers]


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, shape: Shape, place: int) -> None:
        """Four square projections without bias."""
        super().__init__()
        self.heads, self.place = shape.heads, place
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(shape.hidden, shape.hidden, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Tensor | None, cache: Cache | None) -> Tensor:
        """Each position reads those before it, and itself; ``attend`` says which keys are there."""
        rows, width, size = x.shape
        split = (rows, width, self.heads, size // self.heads)
        query, key, value = (f(x).view(split).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        query, key = _turned(query, turn), _turned(key, turn)
        if cache is not None:
            key, value = cache.grown(self.place, key, value)
        causal = attend is None and width > 1
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=attend, is_causal=causal)
        return self.o_proj(found.transpose(1, 2).reshape(rows, width, size))  # type: ignore[no-any-return]  # modules are untyped


class Feed(nn.Module):
    """The gated layer between attentions."""

    def __init__(self, shape: Shape) -> None:
        """Two projections up and one down, without bias."""
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Position by position."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]  # as above


class Layer(nn.Module):
    """Attention, then the gated layer, each after a norm and added to what came in."""

    def __init__(self, shape: Shape, place: int) -> None:
        """One of ``shape.layers``."""
        super().__init__()
        self.self_attn, self.mlp = Attention(shape, place), Feed(shape)
        self.input_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden, eps=1e-6)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], attend: Tensor | None, cache: Cache | None) -> Tensor:
        """As the attention's."""
        x = x + self.self_attn(self.input_layernorm(x), turn, attend, cache)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]  # as above


class Trunk(nn.Module):
    """All but the last projection."""

    def __init__(self, shape: Shape) -> None:
        """Embedding, layers, norm."""
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape, place) for place in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)


class Llama(nn.Module):
    """Logits of the next token from tokens.

    Example:
        >>> import torch
        >>> from rl_sentinel.train.model.llama import Llama, Shape
        >>> model = Llama(Shape(vocabulary=32, hidden=8, layers=1, heads=2, inner=16, positions=16))
        >>> model(torch.zeros(2, 3, dtype=torch.long)).shape
        torch.Size([2, 3, 32])
    """

    def __init__(self, shape: Shape) -> None:
        """Weights are drawn as usual for such models: deviation 0.02, norms of 1."""
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        size = shape.hidden // shape.heads
        rate = shape.base ** (-torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(shape.positions), rate).repeat(1, 2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=0.02)

    def forward(
        self,
        token: Int[Tensor, "B S"],
        *,
        real: Bool[Tensor, "B K"] | None = None,
        cache: Cache | None = None,
        last: bool = False,
    ) -> Float[Tensor, "B S V"]:
        """Logits of what follows each token.

        Args:
            token: token ids.
            real: which of all keys, those in the cache and these, are tokens and no padding; None where padding
                stands to the right alone, since nothing before it reads it.
            cache: keys and values of the tokens before; these are added to it.
            last: logits of the last position alone, ``[B, 1, V]``.

        Returns:
            Logits, in nats up to a constant per position.
        """
        width, read = token.shape[1], 0 if cache is None else cache.read
        if real is None and read and width > 1:
            real = torch.ones(1, read + width, dtype=torch.bool, device=token.device)
        attend = None if real is None else _attended(real, width)
        place = slice(read, read + width) if real is None else (real.cumsum(1)[:, -width:] - 1).clamp(min=0)
        if read + width > self.shape.positions:  # some of it may be padding, which has no position of its own
            self._require_room(place)
        turn = self.cosine[place], self.sine[place]  # type: ignore[index]  # buffers are tensors
        if real is not None:
            turn = turn[0].unsqueeze(1), turn[1].unsqueeze(1)
        x = self.model.embed_tokens(token)
        for layer in self.model.layers:
            x = layer(x, turn, attend, cache)
        if cache is not None:
            cache.read += width
        return self.lm_head(self.model.norm(x[:, -1:] if last else x))  # type: ignore[no-any-return]  # as above

    def _require_room(self, place: slice | Tensor) -> None:
        """Refuse positions that the model does not have."""
        most = self.shape.positions
        last = place.stop if isinstance(place, slice) else int(place.max()) + 1
        if last > most:
            raise SentinelError(f"policy.positions is {most}, expected {last} or more: so long is what it reads")

    @property
    def layers(self) -> list[nn.Module]:
        """What is sharded one by one."""
        return list(self.model.layers)

    def memory(self, width: int) -> Cache:
        """An empty cache for sequences of up to ``width`` tokens."""
        return Cache(width)


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    half = x.shape[-1] // 2
    return x * turn[0] + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * turn[1]


def _attended(real: Tensor, width: int) -> Tensor:
    """Which keys each of the last ``width`` positions reads: real ones up to itself; padding reads itself alone."""
    whole = real.shape[1]
    if width == 1:
        return real[:, None, None, :]
    place = torch.arange(whole, device=real.device)
    query = place[-width:].unsqueeze(1)
    return ((real.unsqueeze(1) & (place <= query)) | (place == query)).unsqueeze(1)
