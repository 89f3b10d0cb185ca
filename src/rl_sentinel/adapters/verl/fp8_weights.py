"""verl's weights for an engine in FP8: what the engine reads from numbers and the scales of blocks."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.fp8_weights import PER_BLOCK, fp8_boundary, quantization, row_read, trained_weight
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.claims import claims

OWNER = "verl.utils.fp8_utils.FP8QuantizerHelper"
PATH = f"{OWNER}.quant_weights_by_name"
KERNEL = "verl.utils.kernel.fp8_kernel.scaled_fp8_blockwise"

_NAME = "model.layers.{}.mlp.down_proj.weight"

_CLAIMS = claims(
    "fp8_kernel.py, scaled_fp8_blockwise, docstring: per-block descale factors for dequantization", conserves=True
)
_PRODUCED = (
    "workers/rollout/sglang_rollout/sglang_rollout.py, update_weights: the trained weights by name, with the "
    "quantization_config of the engine's model"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundary of the quantization with one scale per block, by the implementation without a kernel for GPUs."""
    if target.has(PATH) and target.has(KERNEL):
        yield from try_bind(target, PATH, "batch", lambda: [_boundary()])


def weights_read(
    owner: Callable[..., Any], kernel: Callable[..., Any], rows: list[list[float]], block: int
) -> dict[str, list[Tensor]]:
    """Quantize the weights of a model with one layer per row; return what the engine reads of each."""
    names = [_NAME.format(number) for number in range(len(rows))]
    weights = list(zip(names, map(trained_weight, rows), strict=True))

    async def quantize() -> list[tuple[str, Tensor]]:
        found = owner(quantization(block)).quant_weights_by_name(weights)
        return [one async for one in found] if hasattr(found, "__aiter__") else list(found)

    with (
        replaced_globals(kernel.__globals__, _TRITON_AVAILABLE=False),
        replaced_globals(vars(torch.distributed), get_rank=lambda *_group: 0),
    ):
        sent = asyncio.run(quantize())
    found = [[one for one in sent if one[0].startswith(name)] for name in names]
    return {"logprobs": [row_read(row, named) for row, named in zip(rows, found, strict=True)]}


def _boundary() -> Boundary:
    reach = "actor_rollout_ref.rollout.quantization=fp8 with SGLang or TensorRT-LLM, without Triton"
    code = {"owner": OWNER, "kernel": KERNEL}
    return fp8_boundary(PATH, weights_read, code, PER_BLOCK, _CLAIMS, reach, _PRODUCED)
