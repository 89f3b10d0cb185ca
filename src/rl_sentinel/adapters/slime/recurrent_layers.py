"""slime's models with recurrent layers (Qwen3-Next, Qwen3.5): the layers' outputs for packed sequences."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from rl_sentinel.adapters.kit import recurrent_layers
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column, Lengths
from rl_sentinel.adapters.kit.forms import Padded
from rl_sentinel.adapters.kit.recurrent_layers import as_rows, embedded
from rl_sentinel.adapters.kit.replacement import nothing
from rl_sentinel.adapters.kit.requirements import no_empty_response
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

_FOLDER = "slime_plugins.models"

#: The layer that Megatron calls -> the recurrent layer in it.
LAYERS: Mapping[str, str] = {
    f"{_FOLDER}.qwen3_next.Attention": f"{_FOLDER}.qwen3_next.Qwen3NextGatedDeltaNet",
    f"{_FOLDER}.qwen3_5.Attention": f"{_FOLDER}.qwen3_5.Qwen3_5GatedDeltaNet",
}

#: The base class, whose ``forward`` Megatron calls.
FORWARD = f"{_FOLDER}.hf_attention.HuggingfaceAttention.forward"

_DOCS = (
    "slime_plugins/models, docstrings of the layers: support of several lengths (cu_seqlens); "
    "flash-linear-attention: the state starts anew at each boundary"
)
_PRODUCED = (
    "slime/backends/megatron_utils/data.py, get_batch: packed tokens, and PackedSeqParams with cu_seqlens_q; Megatron "
    "gives them to each layer, with hidden states [N, 1, width]"
)

#: Names in the modules of the layers -> fakes of kernels, of Megatron's ranks and of the device.
FAKES: Mapping[str, Any] = {
    "ShortConvolution": recurrent_layers.ShortConvolution,
    "FusedRMSNormGated": recurrent_layers.GatedNorm,
    "chunk_gated_delta_rule": recurrent_layers.delta_rule,
    "get_chunk_gated_delta_rule": lambda _backend: recurrent_layers.delta_rule,
    "ACT2FN": defaultdict(lambda: nn.functional.silu),
    "accelerator": SimpleNamespace(current_device=nothing),
    "mpu": SimpleNamespace(get_context_parallel_world_size=lambda: 1),
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the layers, in revisions that pack sequences for them."""
    for attention, layer in LAYERS.items():
        path = f"{attention}.hf_forward"
        if not target.has(path) or not target.has(layer) or not target.has(FORWARD):
            continue
        if why := target.fails(layer) or target.fails(FORWARD):
            yield Unbound(path, "batch", why)
        else:
            yield from bindable(target, _boundary(path, layer))


def layer_outputs(
    layer: type, forward: Callable[..., Any], inner: Callable[..., Any], tokens: Tensor, lengths: list[int]
) -> Tensor:
    """The outputs ``[B, T]`` of a recurrent layer for packed sequences, one number per token."""
    hidden, boundaries = embedded(tokens, lengths)
    kernels, megatron = vars(sys.modules[layer.__module__]), vars(sys.modules[forward.__module__])
    fixed = SimpleNamespace(**recurrent_layers.configuration())
    with (
        patch.dict(kernels, FAKES),  # some are undefined without flash-linear-attention
        patch.dict(megatron, FAKES),
        patch.object(torch.cuda, "current_device", nothing),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        net = layer(fixed, 0)
        own = SimpleNamespace(
            args=SimpleNamespace(sequence_parallel=False),
            input_layernorm=nn.Identity(),
            linear_attn=net,
            layer_type="linear_attention",
        )
        own.hf_forward = partial(inner, own)
        packed = SimpleNamespace(cu_seqlens_q=boundaries, cu_seqlens_kv=boundaries, qkv_format="thd")
        output, _ = forward(own, hidden.unsqueeze(1), None, packed_seq_params=packed)
    return as_rows(output[:, 0], boundaries, tokens.shape[1])


def _boundary(path: str, layer: str) -> Boundary:
    model = layer.split(".")[-2]
    return one_call(
        path=path,
        stage="batch",
        call=layer_outputs,
        name="made",
        arguments={
            **functions(layer=layer, forward=FORWARD, inner=path),
            "tokens": Column("token"),
            "lengths": Lengths(),
        },
        produced_by={"tokens": _PRODUCED},
        reads=frozenset({"token", "length"}),
        outputs={"output of the layer": Output("B T", "", "hidden", at=Use("made"), form=Padded())},
        settings={"packed": {}},
        claims=claims(_DOCS, packs=True),
        reach=f"a {model} model, with several sequences in a micro-batch",
        requires=(no_empty_response,),
    )
