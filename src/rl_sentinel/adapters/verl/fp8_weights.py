"""verl's weights for an engine in FP8: what the engine reads from numbers and the scales of blocks."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.fp8_weights import PER_BLOCK, fp8_boundary, quantization, row_read, trained_weight
from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims

OWNER = "verl.utils.fp8_utils.FP8QuantizerHelper"
PATH = f"{OWNER}.quant_weights_by_name"

#: The function of releases from December 2025 to March 2026, for SGLang alone.
EARLY = "verl.utils.sglang.sglang_fp8_utils.quant_weights_by_name"

#: The function that quantizes one weight; until January 2026 it was in the module of ``EARLY``.
KERNELS = (
    "verl.utils.kernel.fp8_kernel.scaled_fp8_blockwise",
    "verl.utils.sglang.sglang_fp8_utils.scaled_fp8_blockwise",
)

_NAME = "model.layers.{}.mlp.down_proj.weight"

#: Setting -> the name of a weight that the engine does not read in FP8, whose numbers must stay.
KEPT: Mapping[str, tuple[str, Settings]] = {
    "the router": ("model.layers.{}.mlp.gate.weight", {"block": 2}),
    "a norm": ("model.layers.{}.input_layernorm.weight", {"block": 2}),
}

_CLAIMS = claims(
    "fp8_kernel.py, scaled_fp8_blockwise, docstring: per-block descale factors for dequantization", conserves=True
)
_PRODUCED = (
    "workers/rollout/sglang_rollout/sglang_rollout.py, update_weights: the trained weights by name, with the "
    "quantization_config of the engine's model"
)


_READ = claims(
    "fp8_utils.py or sglang_fp8_utils.py, should_quantize_param, docstring: linear layers are quantized, norms, "
    "embeddings and the head are not; SGLang, models/qwen2_moe.py: the router has no quantization",
    conserves=True,
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the quantization with one scale per block, by the implementation without a kernel for GPUs.

    Then those of weights that are not quantized.
    """
    path = next((path for path in (PATH, EARLY) if target.has(path)), "")
    kernel = next((path for path in KERNELS if target.has(path)), "")
    if not path or not kernel:
        return
    if path == PATH:
        yield from try_bind(target, PATH, "batch", lambda: [_boundary(kernel)])
    for name, (weight, settings) in KEPT.items():
        yield from try_bind(target, path, "batch", partial(_kept, path, kernel, name, weight, settings))


def weights_read(
    owner: Callable[..., Any], kernel: Callable[..., Any], rows: list[list[float]], block: int
) -> dict[str, list[Tensor]]:
    """Quantize the weights of a model with one layer per row; return what the engine reads of each."""
    names = [_NAME.format(number) for number in range(len(rows))]
    weights = list(zip(names, map(trained_weight, rows), strict=True))

    async def quantize() -> list[tuple[str, Tensor]]:
        return await _listed(owner(quantization(block)).quant_weights_by_name(weights))

    with (
        replaced_globals(kernel.__globals__, _TRITON_AVAILABLE=False),
        replaced_globals(vars(torch.distributed), get_rank=lambda *_group: 0),
    ):
        sent = asyncio.run(quantize())
    found = [[one for one in sent if one[0].startswith(name)] for name in names]
    return {"logprobs": [row_read(row, named) for row, named in zip(rows, found, strict=True)]}


def kept_weights(
    code: Callable[..., Any], kernel: Callable[..., Any], name: str, rows: list[list[float]], block: int
) -> dict[str, list[Tensor]]:
    """Send the weights of a model with one layer per row; return what an engine without scales reads of each.

    ``code`` is the function that quantizes, or the class with this method.
    """
    names = [name.format(number) for number in range(len(rows))]
    weights = list(zip(names, map(trained_weight, rows), strict=True))
    config = quantization(block)
    quantize = code(config).quant_weights_by_name if isinstance(code, type) else partial(code, quant_config=config)
    with (
        replaced_globals(kernel.__globals__, _TRITON_AVAILABLE=False),
        replaced_globals(vars(torch.distributed), get_rank=lambda *_group: 0),
    ):
        sent = dict(asyncio.run(_listed(quantize(weights))))
    plain = torch.tensor(1.0)
    return {
        "logprobs": [
            row_read(row, [("a.weight", sent[own]), ("a.weight_scale", plain)])
            for row, own in zip(rows, names, strict=True)
        ]
    }


async def _listed(sent: Any) -> list[tuple[str, Tensor]]:  # noqa: ANN401 - an iterator of either kind
    return [one async for one in sent] if hasattr(sent, "__aiter__") else list(sent)


def _kept(path: str, kernel: str, name: str, weight: str, settings: Settings) -> list[Boundary]:
    code = {"code": OWNER if path == PATH else path, "kernel": kernel}
    reach = "actor_rollout_ref.rollout.quantization=fp8 with SGLang, and a model with experts"
    made = fp8_boundary(path, kept_weights, code, {name: settings}, _READ, reach, _PRODUCED)
    (step,) = made.steps
    return [replace(made, steps=(replace(step, arguments={**step.arguments, "name": Constant(weight)}),))]


def _boundary(kernel: str) -> Boundary:
    reach = "actor_rollout_ref.rollout.quantization=fp8 with SGLang or TensorRT-LLM, without Triton"
    code = {"owner": OWNER, "kernel": kernel}
    return fp8_boundary(PATH, weights_read, code, PER_BLOCK, _CLAIMS, reach, _PRODUCED)
