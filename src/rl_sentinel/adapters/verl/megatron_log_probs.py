"""Boundary of ``compute_log_prob`` of verl's Megatron actor before 0.8: log-probs and entropy from logits."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import present, try_bind
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.logit_kernels import OneRank, no_compile
from rl_sentinel.adapters.kit.value_codecs import Knob, constants
from rl_sentinel.adapters.process_group import one_process_group
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.verl.arguments import MASK_PRODUCER
from rl_sentinel.adapters.verl.log_probs import scored_boundary
from rl_sentinel.adapters.verl.megatron import (
    ACTOR,
    FORWARD,
    MODULE,
    MegatronFake,
    actor_config,
    fakes_of,
    megatron_actor,
)
from rl_sentinel.adapters.verl.megatron_passes import PARALLEL, log_probs_in_place
from rl_sentinel.adapters.verl.worker_batch import forward_sizes, worker_data, worker_object
from rl_sentinel.core.boundary import Boundary, Step, Unbound

PATH = f"{ACTOR}.compute_log_prob"
ENTROPY = f"{MODULE}.vocab_parallel_entropy"
LOG_PROBS = f"{MODULE}.vocab_parallel_log_probs_from_logits"


class LogitsFake(MegatronFake):
    """A fake model chunk that returns given logits."""

    def logits(self, input_ids: Tensor) -> Tensor:
        """``[b, S, V]``: logits of the rows; position t predicts token t + 1."""
        table = self.dropped(self.answers["logits"][input_ids[:, 0]])
        return torch.nn.functional.pad(table, (0, 0, 0, input_ids.shape[1] - table.shape[1]))


def actor_with_logits(kind: Any, config: Any, answers: Mapping[str, Tensor]) -> Any:  # noqa: ANN401 - classes of the target
    """A verl actor whose model returns given logits; the constructor is not run."""
    one_process_group()
    actor = megatron_actor(kind, config, answers)
    actor.actor_module[0].__class__ = LogitsFake
    return actor


def log_probs_of_known(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probs of the labels, in place of Megatron's kernel; labels of prompts and padding are positions here."""
    return log_probs_in_place(logits, labels.clamp(max=logits.shape[-1] - 1))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the log-probs, with equal micro-batches and with a dynamic batch size."""
    needed = (PATH, FORWARD, ENTROPY, LOG_PROBS)
    if all(target.has(path) for path in needed) and not target.fails(ACTOR):
        source = inspect.getsource(target.find(ACTOR))
        if "return log_probs, entropys" in source:
            yield from try_bind(
                target, PATH, "batch", lambda: [_scored(target, source, dynamic=dynamic) for dynamic in (False, True)]
            )


def _scored(target: Target, source: str, *, dynamic: bool) -> Boundary:
    own: dict[str, Callable[..., Any]] = {
        LOG_PROBS: log_probs_of_known,
        f"{PARALLEL}.mpu": OneRank,
        f"{PARALLEL}.torch.compile": no_compile,
    }
    shared = {path: fake for path, fake in fakes_of(target, source).items() if path != ENTROPY}
    config = actor_config(target, "token-mean", source)
    step = Step(
        call=PATH,
        name="scored",
        fakes={**shared, **present(target, own)},
        arguments={
            "0": worker_object(actor_with_logits, ACTOR, config, {"logits": Column("logits")}),
            "1": worker_data({}, **forward_sizes(dynamic=dynamic), temperature=Knob("temperature")),
            **constants(calculate_entropy=True),
        },
        produced_by={"1": f"{MASK_PRODUCER}; megatron_workers.py, compute_log_prob: temperature of the rollout"},
    )
    made = scored_boundary(PATH, step, {"logprob": 0, "entropy": 1}, dynamic=dynamic)
    evaluates = ".eval()" in source.partition("def compute_log_prob")[2].partition("def make_minibatch")[0]
    mode = "" if evaluates else "; models with dropout, which stay in training mode here"
    return replace(made, reach=f"actor.strategy=megatron, {made.reach}{mode}")
