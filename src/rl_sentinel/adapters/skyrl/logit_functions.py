"""SkyRL's log-prob and entropy kernels: plain, chunked, and for a vocabulary-parallel group of one rank."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import AfterPrompt, Padded
from rl_sentinel.adapters.kit.logit_kernels import OneRank, bind_backward, bind_logits, no_compile, with_full_sequence
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, constants
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.batch import VOCABULARY
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

_FUNCTIONS = "skyrl.backends.skyrl_train.utils.torch_utils"
_PARALLEL = "skyrl.backends.skyrl_train.distributed.megatron.model_utils"

SHIFTED = f"{_PARALLEL}.from_parallel_logits_to_logprobs"

#: Positions per chunk: most response lengths are not a multiple of it.
CHUNK = 2
#: Positions per chunk where two functions share logits: some responses fill several chunks, others not one.
WIDE_CHUNK = 3

_CITE = "torch_utils.py, docstrings: per-token log-probabilities for the given labels; chunked entropy from logits"
_SHARDED = "model_utils.py, docstrings: log probabilities from sharded vocab logits; entropy of sharded logits"
_PRODUCED = "model_wrapper.py, forward: logits of whole sequences, divided by temperature"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the kernels that the release has."""
    for name in ("logprobs_from_logits", "logprobs_from_logits_v2"):
        path = f"{_FUNCTIONS}.{name}"
        if target.has(path):
            yield from bindable(
                target, bind_logits(path, "logprob", cite=_CITE, reach="every run", produced_by=_PRODUCED)
            )
    chunked = f"{_FUNCTIONS}.chunked_entropy_from_logits"
    if target.has(chunked):
        options: dict[str, Codec] = constants(requires_grad=True, chunk_size=CHUNK)
        yield from bindable(
            target,
            bind_logits(chunked, "entropy", cite=_CITE, reach="every run", produced_by=_PRODUCED, arguments=options),
        )
    if target.has(SHIFTED):
        yield from bindable(target, _shifted(SHIFTED, "default", None), _shifted(SHIFTED, "in chunks", CHUNK))
    path = f"{_PARALLEL}.vocab_parallel_entropy"
    if target.has(path):
        place = target.locate(path).rpartition(".")[0]
        about: dict[str, Any] = {
            "cite": _SHARDED,
            "reach": "strategy=megatron",
            "produced_by": _PRODUCED,
            "fakes": {
                f"{place}.mpu": OneRank,
                f"{place}.torch.compile": no_compile,
            },
        }
        backward = bind_backward(path, setting="backward", **about)
        yield from bindable(target, bind_logits(path, "entropy", **about), backward)
        if target.has(SHIFTED):
            yield from bindable(target, _shared_logits(path, about["fakes"]))


def _shifted(path: str, setting: str, chunk: int | None) -> Boundary:
    return bind_logits(
        path,
        "logprob",
        cite=_SHARDED,
        reach="strategy=megatron" + ("" if chunk is None else ", trainer.logprobs_chunk_size"),
        produced_by="megatron_model_wrapper.py: the logits and the tokens of whole sequences, prompts included",
        setting=setting,
        arguments={
            **constants(vocab_start_index=0, vocab_end_index=VOCABULARY),
            "tp_group": Derived(lambda _inputs: one_process_group()),
            **({} if chunk is None else {"chunk_size": Constant(chunk)}),
        },
        call=with_full_sequence,
        sequences=True,
    )


def shared_logits_gradient(
    log_probs: Callable[..., Tensor],
    entropy: Callable[..., Tensor],
    logits: Tensor,
    tokens: Tensor,
    **options: Any,  # noqa: ANN401 - plain values
) -> Tensor:
    """The gradient of log-probs plus entropy for each token's logit, where both use the same logits."""
    leaf = (logits.detach() * 1).requires_grad_()
    whole = torch.cat([leaf, torch.zeros_like(leaf[:, :1])], dim=1)
    total = log_probs(whole, tokens, **options).sum() + entropy(whole).sum()
    torch.autograd.backward([total])
    gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return gradient.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)


def _shared_logits(entropy: str, fakes: Mapping[str, Callable[..., Any]]) -> Boundary:
    return one_call(
        path=f"{SHIFTED} -> {entropy}",
        stage="batch",
        call=shared_logits_gradient,
        name="slope",
        arguments={
            "0": Constant(Function(SHIFTED)),
            "1": Constant(Function(entropy)),
            "2": Column("logits"),
            "3": Column("token", AfterPrompt(0)),
            **constants(vocab_start_index=0, vocab_end_index=VOCABULARY),
            "tp_group": Derived(lambda _inputs: one_process_group()),
            "chunk_size": Constant(WIDE_CHUNK),
        },
        fakes=fakes,
        produced_by={"2": "megatron_model_wrapper.py, loss_func: log-probs, then the entropy, of one tensor of logits"},
        outputs={"slope": Output("B T", "", "", at=Use("slope"), form=Padded())},
        settings={"of the same logits": {}},
        claims=claims(_SHARDED),
        reach="strategy=megatron, trainer.algorithm.use_entropy_loss",
    )
