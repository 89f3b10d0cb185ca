"""Boundaries of verl's functions of logits: log-probs and entropy, also in chunks or vocabulary-parallel."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.logit_kernels import (
    CustomLayer,
    OneRank,
    bind_backward,
    bind_logits,
    no_compile,
    with_flat_logits,
)
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.codec import Codec

_FUNCTIONS = "verl.utils.torch_functional"
_PARALLEL = "verl.utils.megatron.tensor_parallel"

#: Chunk sizes: most response lengths are not a multiple of ``CHUNK``, some responses fit into one ``WIDE`` chunk.
CHUNK, WIDE = 2, 4

_FUSED = "verl.utils.experimental.torch_functional.FusedLinearForPPO"

_REPLACES = "experimental/torch_functional.py, FusedLinearForPPO: log-probs and entropy without all logits at a time"

_CITE = "torch_functional.py, docstrings: per-token log-probabilities of the labels; Shannon entropy from logits"
_SHARDED = "tensor_parallel.py, docstrings: entropy when the logits are sharded in tp ranks; here one rank has all"
_PRODUCED = "workers/actor/dp_actor.py, _forward_micro_batch: logits of the response, divided by temperature"

#: Function -> its per-token output.
PLAIN: Mapping[str, str] = {
    "logprobs_from_logits": "logprob",
    "logprobs_from_logits_naive": "logprob",
    "logprobs_from_logits_v2": "logprob",
    "entropy_from_logits": "entropy",
    "calculate_sum_pi_squared_from_logits": "pi_squared",
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the functions of this release."""
    for name, quantity in PLAIN.items():
        path = f"{_FUNCTIONS}.{name}"
        if target.has(path):
            yield from try_bind(target, path, "batch", lambda p=path, q=quantity: [_plain(p, q)])  # type: ignore[misc]
    chunked = f"{_FUNCTIONS}.entropy_from_logits_with_chunking"
    if target.has(chunked):
        yield from try_bind(target, chunked, "batch", lambda: [_plain(chunked, "entropy", chunk_size=CHUNK)])
    yield from try_bind(target, _FUSED, "batch", _fused)
    for name, quantity, chunk in (
        ("vocab_parallel_entropy", "entropy", {}),
        ("vocab_parallel_entropy_with_chunking", "entropy", {"chunk_size": CHUNK}),
        ("vocab_parallel_sum_pi_squared", "pi_squared", {}),
    ):
        path = f"{_PARALLEL}.{name}"
        if target.has(path):
            yield from try_bind(target, path, "batch", lambda p=path, q=quantity, c=chunk: _sharded(p, q, **c))  # type: ignore[misc]


def _fused() -> Iterator[Boundary]:
    """Boundaries of log-probs and entropies in chunks.

    The gradients are for hidden states, for a custom layer's output, or for the head.
    """
    for quantity in ("logprob", "entropy"):
        for leaf, call in (("hidden states", of_hidden_states), ("last layer", of_last_layer), ("head", of_head)):
            boundary = bind_logits(
                _FUSED,
                quantity,
                cite=_REPLACES,
                reach="model.use_fused_kernels=True, model.fused_kernel_options.impl_backend=torch"
                + (", model.use_liger=True" if call is of_last_layer else ""),
                produced_by="models/transformers/dense_common.py, forward_with_torch_backend: last hidden states, the "
                "weight of the head, labels rolled by one position",
                setting=f"{quantity}, {leaf}",
                arguments={"temperature": Knob("temperature"), "quantity": Constant(quantity)},
                call=call,
            )
            yield replace(boundary, settings={f"{quantity}, {leaf}": {"temperature": 0.5}})


def of_hidden_states(
    kind: type, logits: Tensor, tokens: Tensor | None = None, *, temperature: float, quantity: str
) -> Tensor:
    """Call the kernel with the logits ``[B, T, V]`` as hidden states, and with an identity head."""
    head = torch.eye(logits.shape[-1], dtype=logits.dtype)
    return _both(kind, logits, head, logits.shape[:-1], tokens, temperature)[quantity]


def of_last_layer(
    kind: type, logits: Tensor, tokens: Tensor | None = None, *, temperature: float, quantity: str
) -> Tensor:
    """Call the kernel with hidden states of a custom layer, such as the norm of a model with ``use_liger``."""
    made: Tensor = CustomLayer.apply(logits)  # type: ignore[no-untyped-call] # torch does not annotate it
    return of_hidden_states(kind, made, tokens, temperature=temperature, quantity=quantity)


def of_head(kind: type, logits: Tensor, tokens: Tensor | None = None, *, temperature: float, quantity: str) -> Tensor:
    """Call the kernel with a one-hot hidden state per token, and with a head that contains the logits of all tokens."""
    flat = logits.reshape(-1, logits.shape[-1])
    states = torch.eye(len(flat), dtype=logits.dtype).view(*logits.shape[:-1], -1)
    return _both(kind, states, flat.t(), logits.shape[:-1], tokens, temperature)[quantity]


def _both(  # noqa: PLR0913 - the arguments of the kernel
    kind: Any,  # noqa: ANN401 - a class of the target
    states: Tensor,
    head: Tensor,
    shape: torch.Size,
    tokens: Tensor | None,
    temperature: float,
) -> dict[str, Tensor]:
    labels = torch.zeros(shape, dtype=torch.int64) if tokens is None else tokens
    log_probs, entropy = kind(chunk_size=CHUNK).forward(states, head, labels, temperature)
    return {"logprob": log_probs, "entropy": entropy}


def _plain(path: str, quantity: str, **options: int) -> Boundary:
    arguments: dict[str, Codec] = constants(**options)
    return bind_logits(
        path,
        quantity,
        cite=_CITE,
        reach="every training step",
        produced_by=_PRODUCED,
        arguments=arguments,
        call=with_flat_logits if options else None,
    )


def _sharded(path: str, quantity: str, **options: int) -> list[Boundary]:
    about: dict[str, Any] = {
        "cite": _SHARDED,
        "reach": "actor.strategy=megatron"
        + (", actor.entropy_from_logits_with_chunking=True, actor.entropy_coeff above 0" if options else ""),
        "produced_by": "workers/actor/megatron_actor.py, logits_processor: float32 logits, divided by temperature",
        "arguments": constants(**options),
        "fakes": {
            f"{_PARALLEL}.mpu": OneRank,
            f"{_PARALLEL}.torch.compile": no_compile,
        },
    }
    forward = [bind_logits(path, quantity, gradient=not options, **about)]
    if quantity != "entropy":
        return forward
    about["arguments"] = {name: Constant(WIDE) for name in options}
    return [*forward, bind_backward(path, setting="backward", **about)]
