"""Metrics that TRL's asynchronous trainers log about packed samples: tokens, rewards and padding."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.containers import EachRow, Table
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.kit.requirements import has_trained_token, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import Cell, RowPrompt, RowTokens
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.async_loss import COLLATOR, PLANNER, TRAINER, as_queued
from rl_sentinel.adapters.trl.log_averages import write_metrics
from rl_sentinel.adapters.trl.token_model import FIRST
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Inputs

#: For GRPO and for distillation: the trainer, its collator, and the planner that forms micro-batches.
PARTS: Mapping[str, tuple[str, ...]] = {
    "GRPO": (TRAINER, COLLATOR, PLANNER),
    "distillation": tuple(
        f"trl.experimental.async_distillation.async_distillation_trainer.{name}"
        for name in ("AsyncDistillationTrainer", "DataCollatorForRollout", "FixedCountBatcher")
    ),
}

#: Logged name -> the output that it is compared with, and the name of its definition.
LOGGED: Mapping[str, tuple[Output, str]] = {
    "reward": (Output("", "reward", "outcome.mean", over="all"), "over scored rows"),
    "sample/forwarded_tokens_mean": (Output("", "tokens", "sequence_length.mean", over="all"), "over all rows"),
    "sample/forwarded_tokens_max": (Output("", "tokens", "sequence_length.max", over="all"), "over all rows"),
    "sample/trained_tokens_mean": (Output("", "tokens", "length.mean", over="all"), "trained tokens over all rows"),
    "batch/row_tokens_mean": (Output("", "tokens", "sequence_length.mean", over="all"), "over all rows"),
    "batch/row_tokens_max": (Output("", "tokens", "sequence_length.max", over="all"), "over all rows"),
    "batch/masked_token_frac": (Output("", "", "untrained_fraction", over="all"), "of prompts and responses"),
    "batch/pad_frac": (Output("", "", "padding_fraction", over="all"), ""),
}

_DOCS = (
    "async_grpo_trainer.py, DataCollatorForRollout._log_metrics, comments: tokens that are forwarded and tokens that "
    "train, rewards of the samples that have one, padding between ranks; one sample for each rank"
)

_PRODUCER = "async_grpo_trainer.py, RolloutQueueDataset and FixedCountBatcher: a sample of the queue for each rank"


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the metrics, in releases that log metrics in the collator."""
    for trainer, collator, planner in PARTS.values():
        paths = (f"{trainer}.log", f"{collator}.torch_call", planner)
        if not all(map(target.has, paths)) or target.fails(trainer):
            continue
        source = inspect.getsource(target.find(collator))
        logged = {name: pair for name, pair in LOGGED.items() if name == "reward" or f'"{name}"' in source}
        if "metrics" in target.find(collator).__dataclass_fields__ and len(logged) > 1:
            yield from bindable(target, _logged(trainer, collator, planner, logged))


def _logged(trainer: str, collator: str, planner: str, logged: Mapping[str, tuple[Output, str]]) -> Boundary:
    sample = {
        "prompt": RowPrompt(),
        "completion_mask": RowTokens("mask", "int"),
        "old_log_probs": RowTokens("old_logprob"),
        "reward": Cell("reward"),
        "scored": Cell("scored", "bool"),
        "group_id": Cell("group", "int"),
    }
    definitions = {name: definition for name, (_, definition) in logged.items() if definition}
    return one_call(
        path=f"{collator}.torch_call -> {trainer}.log",
        stage="metric",
        call=log_samples,
        name="written",
        arguments={
            **functions(entry=f"{trainer}.log", kind=trainer, collator=collator, planner=planner),
            "samples": EachRow(Table(sample)),
        },
        produced_by={"samples": _PRODUCER},
        unused=frozenset({"old_logprob", "group"}),
        outputs={name: replace(o, at=Use("written")[name], form=Number()) for name, (o, _) in logged.items()},
        settings={"logged": {}},
        claims=claims(_DOCS, output_definitions=definitions),
        reach="every step",
        requires=(no_empty_response, has_trained_token, prompts_have_tokens, some_are_scored),
    )


def prompts_have_tokens(inputs: Inputs) -> str:
    """The reason to skip a batch where a prompt has no token; empty otherwise."""
    return "a prompt has no token" if bool((inputs.batch.prompt_length == 0).any()) else ""


def some_are_scored(inputs: Inputs) -> str:
    """The reason to skip a batch where no sample has a reward; empty otherwise."""
    return "" if bool(inputs.batch.scored.any()) else "no sample has a reward"


def log_samples(
    entry: Callable[..., Any],
    kind: Any,  # noqa: ANN401 - a class of the target
    collator: Any,  # noqa: ANN401 - a class of the target
    planner: Any,  # noqa: ANN401 - a class of the target
    samples: list[dict[str, Any]],
) -> dict[str, Any]:
    """Collate one micro-batch with one sample per rank, and return the metrics that the trainer then logs."""
    width = max(len(sample["completion_mask"]) for sample in samples)
    queued = [
        as_queued({"advantage": 0.0, **sample}, FIRST + row * width, sample["prompt"])
        for row, sample in enumerate(samples)
    ]
    for own, sample in zip(queued, samples, strict=True):
        own["metrics"] = {"reward": sample["reward"] if sample["scored"] else float("nan")}
        own |= {"prompt_id": sample["group_id"], "teacher_id": "", **_no_candidates(len(own["input_ids"]))}
    metrics: dict[str, list[Any]] = defaultdict(list)
    packer = collator(0, len(samples), metrics=metrics)
    packer.torch_call([next(iter(planner(queued, len(samples), len(queued))))])
    return write_metrics(entry, kind, metrics)


def _no_candidates(tokens: int) -> dict[str, Any]:
    """Teacher columns without a candidate for any token."""
    return {
        "teacher_topk_ids": np.full((tokens, 1), -1),
        "teacher_topk_logprobs": np.full((tokens, 1), -np.inf, dtype=np.float32),
    }
