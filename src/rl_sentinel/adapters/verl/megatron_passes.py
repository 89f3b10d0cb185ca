"""Boundaries of the forward passes of verl's Megatron engine: packed and padded sequences, context parallelism."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable, present
from rl_sentinel.adapters.kit.causal_model import CausalModel
from rl_sentinel.adapters.kit.containers import Object
from rl_sentinel.adapters.kit.logit_kernels import OneRank, no_compile
from rl_sentinel.adapters.kit.rank_threads import gather_from_ranks, rank_number
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.value_codecs import Constant, Knob, constants
from rl_sentinel.adapters.process_group import one_process_group, parallel_state_of_one_process
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.engine_fakes import SEQUENCE_GROUP, SequenceRanks
from rl_sentinel.adapters.verl.engine_passes import (
    DYNAMIC,
    KERNELS,
    LOG_PROBS,
    PADDED,
    RANKS,
    TWO_RANKS,
    VALUES,
    log_prob_boundary,
    trainer_step,
    value_boundary,
    value_step,
)
from rl_sentinel.adapters.verl.fakes import OneProcess, cpu_device
from rl_sentinel.adapters.verl.megatron import NoRouting, SilentLogger, schedule
from rl_sentinel.core.boundary import Boundary, Unbound
from rl_sentinel.core.call import Function
from rl_sentinel.core.errors import Unbindable

MODULE = "verl.workers.engine.megatron.transformer_impl"
LM_HEAD, VALUE_HEAD = f"{MODULE}.MegatronEngineWithLMHead", f"{MODULE}.MegatronEngineWithValueHead"
CONFIG = "verl.workers.config.McoreEngineConfig"
FORWARD, LAYOUT = "verl.models.mcore.model_forward", "verl.models.mcore.util"
PARALLEL = "verl.utils.megatron.tensor_parallel"
LAYOUT_OF = f"{MODULE}.MegatronEngine._get_context_parallel_layout"

#: The attention for which each rank has one piece of all packed tokens.
CONTIGUOUS = "dsv4_hybrid"

NEEDED = (CONFIG, FORWARD, LAYOUT, PARALLEL)

#: What Megatron builds from verl's configuration; float32, without fp8, pipeline and experts.
_TRANSFORMER = {"fp8": None, "sequence_parallel": False, "calculate_per_token_loss": False}


@cache
def megatron_class(kind: Any) -> Any:  # noqa: ANN401 - the target's class
    """A subclass of verl's Megatron engine whose data-parallel group is one process."""
    return type("Engine", (OneProcess, kind), {})


def megatron_engine(kind: Any, config: Any, *, heads: bool = False) -> Any:  # noqa: ANN401 - objects of the target
    """An engine created without its constructor, which starts Megatron; ``heads`` adds multi-token prediction."""
    one_process_group()
    model_config = SimpleNamespace(
        mtp=SimpleNamespace(enable=heads, enable_train=heads),
        hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]),
        tokenizer=SimpleNamespace(pad_token_id=0),
    )
    return bare_instance(
        megatron_class(kind),
        engine_config=config,
        model_config=model_config,
        tf_config=SimpleNamespace(**_TRANSFORMER),
        enable_routing_replay=False,
    )


class GptFake:
    """A fake with the interface of Megatron's GPT models; attention spans the context-parallel ranks."""

    pre_process = post_process = True

    def __init__(self, model: CausalModel, attention: str) -> None:
        """Wrap the model; the engine splits sequences by the variant of its ``attention``."""
        self.model = model
        self.config = SimpleNamespace(**_TRANSFORMER, experimental_attention_variant=attention or None)

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        packed_seq_params: Any = None,  # noqa: ANN401 - Megatron's class, or its fake
        **_about: object,
    ) -> Tensor:
        """Logits (or values) of padded sequences, or of this rank's pieces of packed sequences."""
        if packed_seq_params is None:
            places = torch.arange(input_ids.shape[1]).expand_as(input_ids) if position_ids is None else position_ids
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            return self.model.padded(input_ids, places, mask)
        starts = packed_seq_params.cu_seqlens_q_padded.tolist()
        parts = gather_from_ranks(input_ids[0])
        contiguous = getattr(packed_seq_params, "cp_partition_mode", "zigzag") == "contiguous"
        pieces = list(torch.arange(starts[-1]).chunk(len(parts))) if contiguous else _pieces(starts, len(parts))
        ids, places = parts[0].new_zeros(starts[-1]), torch.zeros(starts[-1], dtype=torch.int64)
        for part, piece in zip(parts, pieces, strict=True):
            ids[piece] = part
        for low, high in pairwise(starts):
            places[low:high] = torch.arange(high - low)
        return self.model.packed(ids, places, starts[:-1])[pieces[rank_number()]].unsqueeze(0)


def _pieces(starts: list[int], ranks: int) -> list[Tensor]:
    """The packed positions of each rank: of the 2n pieces of a sequence, rank r has r and 2n - 1 - r."""
    positions = []
    for rank in range(ranks):
        own = []
        for low, high in pairwise(starts):
            pieces = torch.arange(low, high).chunk(2 * ranks) if ranks > 1 else (torch.arange(low, high),)
            own += [pieces[rank], pieces[-1 - rank]] if ranks > 1 else [pieces[0]]
        positions.append(torch.cat(own))
    return positions


@dataclass
class Chunks:
    """Builds the model chunks of the engine: a single chunk, because there is no pipeline."""

    attention: str

    def __call__(self, model: CausalModel) -> list[GptFake]:
        """Return a list with the only chunk."""
        return [GptFake(model, self.attention)]


#: Makes the model that the engine calls.
CHUNKS = Object(Chunks, {"attention": Knob("attention", default="")})


def log_probs_in_place(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probs of the labels; like Megatron's cross entropy, it overwrites the logits with probabilities."""
    log_probs = logits.log_softmax(-1)
    with torch.no_grad():
        logits.copy_(log_probs.exp())
    return log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _parallel_state() -> type:
    """A fake of Megatron's parallel state for the context-parallel ranks."""
    functions: dict[str, Callable[..., Any]] = {
        **parallel_state_of_one_process(),
        "get_context_parallel_world_size": lambda *_about, **_more: SequenceRanks.get_world_size(),
        "get_context_parallel_rank": lambda *_about, **_more: rank_number(),
        "get_context_parallel_group": lambda *_about, **_more: SEQUENCE_GROUP,
    }
    return type("ContextParallel", (), {name: staticmethod(function) for name, function in functions.items()})


FAKES: Mapping[str, Callable[..., Any]] = {
    f"{MODULE}.mpu": _parallel_state(),
    f"{MODULE}.get_device_id": cpu_device,
    f"{MODULE}.get_forward_backward_func": lambda: schedule,
    f"{MODULE}.unwrap_model": lambda model: model,
    f"{MODULE}.vocab_parallel_log_probs_from_logits": log_probs_in_place,
    f"{MODULE}.RouterReplayHelper": NoRouting,
    f"{MODULE}.logger": SilentLogger,
    f"{FORWARD}.unwrap_model": lambda model: model,
    f"{LAYOUT}.mpu": _parallel_state(),
    f"{LAYOUT}.PackedSeqParams": SimpleNamespace,
    f"{LAYOUT}.logger": SilentLogger,
    f"{LAYOUT}._PACKED_SEQ_PARAMS_HAS_CP_PARTITION_MODE": SimpleNamespace,  # a true value: Megatron has this field
    f"{LAYOUT}.torch.distributed.all_gather": SequenceRanks.all_gather,
    f"{PARALLEL}.mpu": OneRank,
    f"{PARALLEL}.torch.compile": no_compile,
    **KERNELS,
}


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the forward passes of actor and critic on Megatron."""
    fakes = present(target, FAKES)
    for method, engine, make in ((LOG_PROBS, LM_HEAD, _log_probs), (VALUES, VALUE_HEAD, _values)):
        path = f"{method} -> {engine}.forward_step"
        if not target.has(method) or not target.has(engine):
            continue
        try:
            for needed in (method, engine, *NEEDED):
                target.find(needed)
        except Unbindable as why:
            yield Unbound.because(path, "batch", why)
            continue
        yield from bindable(target, *make(target, path, fakes))


def can_pad(target: Target) -> bool:
    """Whether the engine of this release accepts padded sequences. All releases accept packed sequences."""
    return "use_remove_padding" in {field.name for field in fields(target.find(CONFIG))}


def engine_codec(target: Target, kind: str) -> Object:
    """An engine on Megatron."""
    numbers = {"context_parallel_size": RANKS, **constants(sequence_parallel=False)}
    if can_pad(target):
        numbers["use_remove_padding"] = Knob("use_remove_padding")
    parts = {"kind": Constant(Function(kind)), "config": Object(CONFIG, numbers)}
    return Object(megatron_engine, parts, at={"config": "engine_config"})


def _log_probs(target: Target, path: str, fakes: Mapping[str, Callable[..., Any]]) -> Iterator[Boundary]:
    settings = {"padded": PADDED, "context parallel": TWO_RANKS}
    if target.has(LAYOUT_OF):
        settings["context parallel, contiguous"] = {**TWO_RANKS, "attention": CONTIGUOUS}
    step = trainer_step(LOG_PROBS, engine_codec(target, LM_HEAD), "logits", wrap=CHUNKS, fakes=fakes)
    reach = (
        "actor.strategy=megatron; padded: model.use_remove_padding=False; context parallel: "
        "actor.megatron.context_parallel_size=2"
    )
    yield log_prob_boundary(target, path, step, settings, reach)


def _values(target: Target, path: str, fakes: Mapping[str, Callable[..., Any]]) -> Iterator[Boundary]:
    step = value_step(target, engine_codec(target, VALUE_HEAD), CHUNKS, fakes)
    yield value_boundary(path, step, {"packed": DYNAMIC}, "critic.strategy=megatron")
