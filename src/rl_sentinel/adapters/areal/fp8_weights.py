"""AReaL's conversion of Megatron's weights for an engine in FP8: what the engine reads from numbers and scales."""

from collections.abc import Callable, Iterator
from inspect import signature
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.fp8_weights import PER_TENSOR, fp8_boundary, quantization, row_read, trained_weight
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

#: Where releases define the conversion, newest first.
PATHS = ("areal.engine.megatron_utils.megatron.convert_to_hf", "areal.utils.megatron.convert_to_hf")

_NAME = "module.module.decoder.layers.{}.mlp.linear_fc2.weight"

_CLAIMS = claims(
    "fp8/quantize.py, _quantize_param: per-tensor quantization; the engine multiplies weights by weight_scale",
    conserves=True,
)
_PRODUCED = (
    "areal/engine/megatron_engine.py, initialize: quantization_config of the model's config.json; the transfer "
    "converts each weight by its Megatron name"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundary of the conversion with one scale per weight; scales of blocks need a kernel on a GPU."""
    path = next((path for path in PATHS if target.has(path) and not target.fails(path)), "")
    if path and "quantization_config" in signature(target.find(path)).parameters:  # since December 2025
        reach, code = "Megatron, a model in FP8", {"convert": path}
        yield from bindable(target, fp8_boundary(path, weights_read, code, PER_TENSOR, _CLAIMS, reach, _PRODUCED))


def weights_read(convert: Callable[..., Any], rows: list[list[float]], block: int) -> dict[str, list[Tensor]]:
    """Convert the weights of a model with one layer per row; return what the engine reads of each."""
    section = SimpleNamespace(num_attention_heads=1, num_query_groups=1, hidden_size=1, kv_channels=1)
    config = quantization(block)
    sent = [convert(section, "qwen2", _NAME.format(n), trained_weight(row), config) for n, row in enumerate(rows)]
    return {"logprobs": [row_read(row, named) for row, named in zip(rows, sent, strict=True)]}
