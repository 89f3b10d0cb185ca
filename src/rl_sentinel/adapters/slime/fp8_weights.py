"""slime's conversion of Megatron's weights for an engine in FP8: what the engine reads from numbers and scales."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.fp8_weights import (
    PER_BLOCK,
    PER_TENSOR,
    fp8_boundary,
    quantization,
    row_read,
    trained_weight,
)
from rl_sentinel.adapters.slime.weight_updates import OPTIONS
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

_FOLDER = "slime.backends.megatron_utils"

#: Where revisions define the conversion, newest first.
PATHS = (f"{_FOLDER}.megatron_to_hf.convert_to_hf", f"{_FOLDER}.update_weight_utils.convert_to_hf")

#: Where revisions define the kernel for the scales of blocks, which needs a GPU, if they have it.
KERNELS = (f"{_FOLDER}.kernels.fp8_kernel", "slime.utils.fp8_kernel")

_NAME = "module.module.decoder.layers.{}.mlp.linear_fc2.weight"

_CLAIMS = claims(
    "quantize_params, comments: per block and per tensor quant; the engine multiplies weights by weight_scale_inv or "
    "weight_scale",
    conserves=True,
)
_PRODUCED = (
    "slime/backends/megatron_utils/actor.py, init: quantization_config of the engine's model (--hf-checkpoint); the "
    "transfer converts each weight by its Megatron name"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundary of the conversion with one scale per weight and, in revisions without the kernel, per block."""
    path = next((path for path in PATHS if target.has(path) and not target.fails(path)), "")
    if path:
        for settings in (PER_TENSOR, *(() if any(map(target.has, KERNELS)) else (PER_BLOCK,))):
            reach = "--hf-checkpoint of a model in FP8"
            boundary = fp8_boundary(path, weights_read, {"convert": path}, settings, _CLAIMS, reach, _PRODUCED)
            yield from bindable(target, boundary)


def weights_read(convert: Callable[..., Any], rows: list[list[float]], block: int) -> dict[str, list[Tensor]]:
    """Convert the weights of a model with one layer per row; return what the engine reads of each."""
    args, config = SimpleNamespace(**OPTIONS), quantization(block)
    sent = [convert(args, "qwen2", _NAME.format(n), trained_weight(row), config) for n, row in enumerate(rows)]
    return {"logprobs": [row_read(row, named) for row, named in zip(rows, sent, strict=True)]}
