"""AReaL's supervised update and its evaluation on several ranks, which have different rows or parts of the model."""

import inspect
from collections.abc import Iterator
from dataclasses import replace

import torch

from rl_sentinel.adapters.areal.arguments import SPLIT, padded_to_longest
from rl_sentinel.adapters.areal.fakes import ENTROPY, LABELS, LOGPROBS
from rl_sentinel.adapters.areal.rank_engines import run_engines
from rl_sentinel.adapters.areal.updates import (
    ENGINE,
    LM,
    LM_CONFIG,
    choose_platform,
    method_of,
    numbers_of_tokens,
)
from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import Object, Table
from rl_sentinel.adapters.kit.requirements import equal_parts, has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.result_forms import Total
from rl_sentinel.adapters.kit.sequences import AttentionMask, FullSequence
from rl_sentinel.adapters.kit.value_codecs import Derived, Knob, functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.core.boundary import Boundary, Output, Stage, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec, Inputs

#: Method of the trainer -> method of the engine that it calls.
METHODS = {"train_lm": "train_batch", "evaluate_lm": "eval_batch"}

_SHIFTED = FullSequence(shift=1)

_DOCS = (
    "areal/engine/fsdp_engine.py, train_batch and eval_batch: loss_weight_fn counts the trained tokens of each "
    "micro-batch; losses are weighted by these counts over their sum over micro-batches and data-parallel ranks"
)
_TRAINS = claims(_DOCS, algorithm="negative log-likelihood", aggregation="token-mean", denominator="given")
#: The name of the loss that an evaluation returns.
_EVALUATION = "evaluation loss"
_EVALUATES = claims(_DOCS, output_algorithms={_EVALUATION: "negative log-prob of trained tokens"})
_PRODUCED = (
    "areal/trainer/sft_trainer.py, train and _evaluate: padded rows of the data loader, which has a distributed sampler"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the supervised update, and of the evaluation, on the FSDP engine."""
    for name, of_engine in METHODS.items():
        method, path = method_of(target, LM, name), f"{ENGINE}.{of_engine}"
        if not (target.has(method) and target.has(path)):
            continue
        if why := target.fails(method) or target.fails(path):
            stage: Stage = "metric" if name.startswith("evaluate") else "policy-loss"
            yield Unbound(f"{method} -> {path}", stage, why)
            continue
        choose_platform(target)
        boundary = _on_ranks(method, path, evaluates=name.startswith("evaluate"))
        if "assert total_loss_weight != 0" in inspect.getsource(target.find(path)):
            boundary = replace(boundary, requires=(*boundary.requires, every_rank_trains))
        yield from bindable(target, boundary)


def every_rank_trains(inputs: Inputs) -> str:
    """The reason to skip a batch where a rank has no trained token (releases of 2025 reject it); empty otherwise."""
    trained = inputs.batch.mask.any(1).tensor_split(inputs.layout.ranks)
    return "" if all(bool(part.any()) for part in trained) else "a rank has no trained token, which AReaL rejects"


def _on_ranks(method: str, path: str, *, evaluates: bool) -> Boundary:
    data: dict[str, Codec] = {
        "input_ids": numbers_of_tokens(FullSequence()),
        "attention_mask": AttentionMask(),
        "loss_mask": Column("mask", FullSequence(), torch.int64),
        LOGPROBS: Column("logprob", _SHIFTED, leaf=not evaluates),
        ENTROPY: Column("entropy", _SHIFTED),
        LABELS: numbers_of_tokens(_SHIFTED),
    }
    output = Output("", "nats", over="live") if evaluates else Output("", "", "loss")
    return one_call(
        path=f"{method} -> {path}",
        stage="metric" if evaluates else "policy-loss",
        call=run_engines,
        name="losses",
        arguments={
            **functions(method=method, trainer=LM, owner=ENGINE),
            "config": Object(LM_CONFIG, {"mb_spec": SPLIT}, shared=True),
            "data": Table(data),
            "ranks": Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"})),
            "copies": Knob("copies"),
        },
        produced_by={"data": _PRODUCED},
        unused=frozenset({"entropy", "length", "prompt_length"}),
        outputs={_EVALUATION if evaluates else "loss": replace(output, at=Use("losses"), form=Total())},
        settings={"data parallel": {"copies": 1}, "tensor parallel": {"copies": 2}},
        claims=_EVALUATES if evaluates else _TRAINS,
        reach=f"supervised fine-tuning{', valid_dataset' if evaluates else ''}; several data-parallel ranks, and "
        "allocation_mode with a tensor-parallel size above 1",
        requires=(padded_to_longest, no_empty_response, has_trained_token, equal_parts),
    )
