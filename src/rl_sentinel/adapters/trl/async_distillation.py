"""TRL's asynchronous distillation: queued samples are packed and collated, and each rank computes its loss."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_parts, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.async_loss import PROMPT_WIDTH, share
from rl_sentinel.adapters.trl.liger import forwarded
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.token_model import FIRST, PROMPT
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.claims import Claims, claims

_MODULE = "trl.experimental.async_distillation.async_distillation_trainer"
TRAINER = f"{_MODULE}.AsyncDistillationTrainer"
COLLATOR = f"{_MODULE}.DataCollatorForRollout"
PLANNER = f"{_MODULE}.FixedCountBatcher"

_LOSS = (
    claims(
        "async_distillation_trainer.py, _compute_loss, comment: at beta 0 the forward KL on the teacher's own support",
        algorithm="generalized jsd",
    )
    | claims("the same, comment: the effective scale is 1/global_n_tokens", aggregation="token-mean")
    | claims("the same: the logged entropy of the student", output_algorithms={"entropy": "entropy of trained tokens"})
)
_OVER_RANKS = claims(
    "async_distillation_trainer.py, DataCollatorForRollout: tokens of all ranks are counted", denominator="given"
)
_PRODUCER = (
    "async_distillation_trainer.py, RolloutQueueDataset: one dict per sample of the queue, with the tokens that the "
    "teacher finds likeliest for each token of the completion"
)
_COUNTERS = ("forward_s", "forward_tokens", "trained_tokens", "seq_len_weighted", "samples")


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss over micro-batches and over ranks, with the logged entropy."""
    path = f"{TRAINER}.compute_loss"
    if target.has(PLANNER):
        yield from try_bind(target, path, "aggregate", lambda: (_loss(path, alone=alone) for alone in (False, True)))


class Student:
    """A fake student: its head is the identity, and its backbone looks up the logits that predict the next token."""

    def __init__(self, logits: Tensor) -> None:
        """Store ``[B, T, V]`` logits."""
        self.logits = logits
        self.config = SimpleNamespace(get_text_config=SimpleNamespace)

    def get_output_embeddings(self) -> SimpleNamespace:
        """The output layer, whose weight is the identity."""
        return SimpleNamespace(weight=torch.eye(self.logits.shape[-1], dtype=self.logits.dtype), bias=None)

    def base_model(self, input_ids: Tensor, **_inputs: object) -> SimpleNamespace:
        """Hidden states ``[1, N, V]`` of a packed row; they are 0 where no completion token follows."""
        known = self.logits.flatten(0, 1)
        place = torch.cat([input_ids[:, 1:], torch.full_like(input_ids[:, :1], PROMPT)], 1) - FIRST
        own = (place >= 0) & (place < len(known))
        found = torch.where(own.unsqueeze(2), known[torch.where(own, place, 0)], 0.0)
        return SimpleNamespace(last_hidden_state=found)


def make_trainers(kind: type, micro_batches: int, ranks: int) -> list[Any]:
    """One bare trainer per rank, with the attributes that its loss reads."""
    own = SimpleNamespace(unwrap_model=itself, autocast=nullcontext)
    return [
        bare_instance(
            kind,
            args=SimpleNamespace(beta=0.0, teacher_temperature=1.0, add_tail_bucket=False),
            accelerator=RankAccelerator(own, rank, ranks),
            current_gradient_accumulation_steps=micro_batches,
            _forward_redirection=forwarded,
            _teacher_ids=[],
            _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
            **{f"_step_{name}": 0.0 for name in _COUNTERS},
        )
        for rank in range(ranks)
    ]


def distil_samples(  # noqa: PLR0913 - the parts of a trainer that a micro-batch passes through
    entry: Callable[..., Tensor],
    trainers: list[Any],
    parts: tuple[Callable[..., Any], Callable[..., Any]],
    samples: list[dict[str, Any]],
    student: Student,
    teacher: Tensor,
) -> Tensor:
    """Pack and collate samples, compute the loss on each rank, and return the mean over ranks.

    ``parts`` are the trainer's collator and planner.
    """
    ranks, width = len(trainers), teacher.shape[1]
    collator, planner = parts
    queued = [
        as_queued(sample["completion_mask"], FIRST + row * width, teacher[row].detach().log_softmax(-1))
        for row, sample in enumerate(samples)
    ]
    batch = collator(0, ranks).torch_call([next(iter(planner(queued, ranks, len(queued))))])
    losses = run_on_ranks(
        ranks, lambda rank: entry(trainers[rank], student, {key: share(x, rank, ranks) for key, x in batch.items()})
    )
    return torch.stack(losses).mean()


def as_queued(mask: list[int], first: int, known: Tensor) -> Mapping[str, Any]:
    """A sample as the worker queues it: arrays over prompt and completion, with a distinct id per completion token."""
    most = known[: len(mask)].topk(known.shape[1], -1)
    none = np.full((PROMPT_WIDTH, known.shape[1]), -1, dtype=np.int64)
    return {
        "input_ids": np.asarray([PROMPT] * PROMPT_WIDTH + list(range(first, first + len(mask))), dtype=np.int64),
        "completion_mask": np.asarray([0] * PROMPT_WIDTH + mask, dtype=np.int64),
        "teacher_topk_ids": np.concatenate([none, most.indices.numpy()]),
        "teacher_topk_logprobs": np.concatenate([np.full(none.shape, -np.inf), most.values.numpy()]),
        "prompt_id": first,
        "metrics": {},
    }


def _loss(path: str, *, alone: bool) -> Boundary:
    """The boundary of the loss over a step's micro-batches; with ``alone``, of one micro-batch, split over ranks."""
    ranks = Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"}))
    trainers = Object(
        make_trainers,
        {
            "kind": Constant(Function(TRAINER)),
            "micro_batches": Constant(1) if alone else MICRO_BATCHES,
            "ranks": ranks if alone else Constant(1),
        },
        at={
            "kind": "0.__class__",
            "micro_batches": "0.current_gradient_accumulation_steps",
            "ranks": "0.accelerator.num_processes",
        },
    )
    step = Step(
        call=distil_samples,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainers": Earlier(Use("ready")),
            "parts": Constant((Function(COLLATOR), Function(PLANNER))),
            "samples": EachRow(Table({"completion_mask": RowTokens("mask", "int")})),
            "student": Object(Student, {"logits": Column("logits")}),
            "teacher": Column("ref_logits"),
        },
        each=() if alone else ("micro_batch",),
        produced_by={"samples": _PRODUCER},
    )
    place = Use("ready")[0].attribute("_metrics")["train"]["entropy"]
    loss = Output("", "nats", "loss", at=Use("loss"))
    return Boundary(
        path=path,
        stage="aggregate",
        steps=(Step(call=itself, name="ready", arguments={"trainer": trainers}), step),
        outputs={
            "loss": loss if alone else replace(loss, join="sum"),
            "entropy": Output("", "nats", over="live", at=place, form=Logged()),
        },
        settings={"over ranks" if alone else "default": {"mixture": 0.0}},
        claims=_LOSS | (_OVER_RANKS if alone else Claims()),
        reach="AsyncDistillationTrainer, beta=0.0",
        requires=(equal_parts, no_empty_response, every_row_trains),
    )
