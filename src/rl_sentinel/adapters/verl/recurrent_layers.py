"""verl's forward pass of the recurrent layers of Qwen3.5: their outputs for packed sequences."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, Lengths
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.recurrent_layers import WIDTH, GatedNorm, as_rows, delta_rule, embedded
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

MODULE = "verl.models.transformers.qwen3_5"
LAYER, RECURRENT = f"{MODULE}.qwen3_5_decoder_layer_forward", f"{MODULE}.qwen3_5_gated_delta_net_forward"

#: Setting -> whether the kernels know several sequences; without the packages of the kernels, transformers has its own.
KERNELS: Mapping[str, Settings] = {"with kernels": {"kernels": True}, "without kernels": {"kernels": False}}

_DOCS = (
    "models/transformers/qwen3_5.py, qwen3_5_gated_delta_net_forward: packed sequences by cu_seqlens; "
    "flash-linear-attention: the state starts anew at each boundary"
)
_PRODUCED = (
    "workers/engine/fsdp/transformer_impl.py, prepare_model_inputs: packed tokens, and cu_seqlens of their offsets; "
    "monkey_patch.py, qwen3_5: the forward passes of the layer and of its recurrent part"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the layer, in releases that give it the boundaries of packed sequences."""
    if not target.has(LAYER) or not target.has(RECURRENT):
        return
    if why := target.fails(RECURRENT):
        yield Unbound(LAYER, "batch", why)
        return
    boundary = one_call(
        path=LAYER,
        stage="batch",
        call=layer_outputs,
        name="made",
        arguments={
            **functions(layer=LAYER, recurrent=RECURRENT),
            "tokens": Column("token"),
            "lengths": Lengths(),
            "kernels": Knob("kernels"),
        },
        produced_by={"tokens": _PRODUCED},
        reads=frozenset({"token", "length"}),
        outputs={"output of the layer": Output("B T", "", "hidden", at=Use("made"), form=Padded())},
        settings=KERNELS,
        claims=claims(_DOCS, packs=True),
        reach="a qwen3_5 model on FSDP with use_remove_padding=True",
        requires=(no_empty_response,),
    )
    yield from bindable(target, boundary)


def apply_mask_to_padding_states(hidden_states: Tensor, _mask: object) -> Tensor:
    """The hidden states, unchanged: a packed batch has no mask. verl looks for this function where the layer is."""
    return hidden_states


def plain_rule(  # noqa: PLR0913 - as the function
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: None = None,
    output_final_state: bool = False,  # noqa: FBT001, FBT002 - as the function
    use_qk_l2norm_in_kernel: bool = False,  # noqa: FBT001, FBT002 - as the function
) -> tuple[Tensor, None]:
    """The delta rule of transformers, which knows one sequence only."""
    del initial_state, output_final_state, use_qk_l2norm_in_kernel
    return delta_rule(query, key, value, g=g, beta=beta)


def convolution(x: Tensor, weight: Tensor, seq_idx: Tensor | None = None, **_options: object) -> Tensor:
    """A fake of causal_conv1d's kernel on ``[1, channels, N]``: neighbors of one sequence are mixed."""
    same = torch.ones_like(x[0, 0, 1:], dtype=torch.bool) if seq_idx is None else seq_idx[0, 1:] == seq_idx[0, :-1]
    before = nn.functional.pad(x[..., :-1] * same, (1, 0))
    return nn.functional.silu(x * weight[:, 1:] + before * weight[:, :1])


class RecurrentLayer(nn.Module):
    """The parts of transformers' recurrent layer of Qwen3.5 that its forward pass uses."""

    num_v_heads, num_k_heads, head_k_dim, head_v_dim, key_dim, value_dim, conv_kernel_size = 2, 1, 2, 2, 2, 4, 2
    activation, layer_idx = "silu", 0

    def __init__(self, *, kernels: bool) -> None:
        """Make small weights; without kernels, the convolution is that of torch."""
        super().__init__()
        channels = 2 * self.key_dim + self.value_dim
        sizes = {
            "in_proj_qkv": channels,
            "in_proj_z": self.value_dim,
            "in_proj_b": 2,
            "in_proj_a": 2,
            "out_proj": WIDTH,
        }
        for name, size in sizes.items():
            self.add_module(name, nn.Linear(WIDTH, size, bias=False))
        self.conv1d = nn.Conv1d(channels, channels, 2, groups=channels, padding=1, bias=False)
        self.norm, self.A_log, self.dt_bias = GatedNorm(), torch.zeros(2), torch.ones(2)
        self.causal_conv1d_fn = convolution if kernels else None
        self.chunk_gated_delta_rule = delta_rule if kernels else plain_rule


def nothing_added(hidden_states: Tensor) -> Tensor:
    """Zeros, in place of the layer's other part."""
    return torch.zeros_like(hidden_states)


def layer_outputs(
    layer: Callable[..., Any],
    recurrent: Callable[..., Any],
    tokens: Tensor,
    lengths: list[int],
    kernels: bool,  # noqa: FBT001 - a setting
) -> Tensor:
    """The outputs ``[B, T]`` of the layer for packed sequences, one number per token."""
    hidden, boundaries = embedded(tokens, lengths)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        own = SimpleNamespace(
            layer_type="linear_attention",
            linear_attn=partial(recurrent, RecurrentLayer(kernels=kernels)),
            input_layernorm=nn.Identity(),
            post_attention_layernorm=nn.Identity(),
            mlp=nothing_added,
        )
        offsets = boundaries.long()
        output = layer(own, hidden.unsqueeze(0), (None, None), cu_seqlens=offsets, cu_seqlens_cpu=offsets)
    return as_rows(output[0], boundaries, tokens.shape[1])
