"""Boundaries of verl's functions of logits: log-probs and entropy, also in chunks or vocabulary-parallel."""

from collections.abc import Iterator, Mapping
from typing import Any

from rl_sentinel.adapters.kit.logit_kernels import OneRank, bind_backward, bind_logits, no_compile, with_flat_logits
from rl_sentinel.adapters.kit.value_codecs import Constant
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import try_bind
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.codec import Codec

_FUNCTIONS = "verl.utils.torch_functional"
_PARALLEL = "verl.utils.megatron.tensor_parallel"

#: Chunk sizes: most response lengths are not a multiple of ``CHUNK``, some responses fit into one ``WIDE`` chunk.
CHUNK, WIDE = 2, 4

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
    """The functions of this release."""
    for name, quantity in PLAIN.items():
        path = f"{_FUNCTIONS}.{name}"
        if target.has(path):
            yield from try_bind(target, path, "batch", lambda p=path, q=quantity: [_plain(p, q)])  # type: ignore[misc]
    chunked = f"{_FUNCTIONS}.entropy_from_logits_with_chunking"
    if target.has(chunked):
        yield from try_bind(target, chunked, "batch", lambda: [_plain(chunked, "entropy", chunk_size=CHUNK)])
    for name, quantity, chunk in (
        ("vocab_parallel_entropy", "entropy", {}),
        ("vocab_parallel_entropy_with_chunking", "entropy", {"chunk_size": CHUNK}),
        ("vocab_parallel_sum_pi_squared", "pi_squared", {}),
    ):
        path = f"{_PARALLEL}.{name}"
        if target.has(path):
            yield from try_bind(target, path, "batch", lambda p=path, q=quantity, c=chunk: _sharded(p, q, **c))  # type: ignore[misc]


def _plain(path: str, quantity: str, **options: int) -> Boundary:
    arguments: dict[str, Codec] = {name: Constant(value) for name, value in options.items()}
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
        "arguments": {name: Constant(value) for name, value in options.items()},
        "doubles": {
            f"{_PARALLEL}.mpu": OneRank,
            f"{_PARALLEL}.torch.compile": no_compile,
        },
    }
    forward = [bind_logits(path, quantity, gradient=not options, **about)]
    if quantity != "entropy":
        return forward
    about["arguments"] = {name: Constant(WIDE) for name in options}
    return [*forward, bind_backward(path, setting="backward", **about)]
