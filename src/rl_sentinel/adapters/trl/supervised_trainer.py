"""Run an optimizer step of TRL's supervised trainer over micro-batches and ranks, on known log-probs or logits."""

import dataclasses
from collections.abc import Iterator
from copy import copy, deepcopy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.trl.log_modes import empty_metrics, logged_elsewhere, mixed_with_training
from rl_sentinel.adapters.trl.preference_trainers import batch_samples
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.token_model import set_logits, set_logprobs

#: The field of the configuration with which the labels of all ranks are counted.
OVER_RANKS = "average_tokens_across_devices"

#: A row of the data set: token ids of ``prompt`` and ``response``, and the mask ``trained`` of the response.
Example = dict[str, list[int]]


def dataset_row(columns: list[str], example: Example) -> dict[str, list[int]]:
    """The row of the data set for an example, with only the given columns."""
    ids = example["prompt"] + example["response"]
    trained = [0] * len(example["prompt"]) + example["trained"]
    every = {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [token if m else -100 for token, m in zip(ids, trained, strict=True)],
        "completion_mask": trained,
        "assistant_masks": trained,
        "seq_lengths": [len(ids)],
    }
    return {name: every[name] for name in columns if name in every}


def start_optimizer_step(  # noqa: PLR0913 - the trainer, its rank, and the outputs of the model
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rank: int,
    ranks: int,
    examples: list[Example],
    logprobs: Tensor | None = None,
    logits: Tensor | None = None,
    tokens: Tensor | None = None,
) -> Any:  # noqa: ANN401 - a trainer
    """Copy the trainer for one rank, at the start of an optimizer step on these rows."""
    ready = copy(trainer)
    ready.args, ready.state = copy(trainer.args), copy(trainer.state)
    ready.args.distributed_state = SimpleNamespace(num_processes=ranks, process_index=rank)
    if ranks > 1:  # a configuration of transformers before 4.53 that one process builds turns the field off
        fields = {field.name: field.default for field in dataclasses.fields(ready.args)}
        vars(ready.args).update({name: default for name, default in fields.items() if name == OVER_RANKS})
    ready.model = ready.model_wrapped = deepcopy(trainer.model)
    ready.accelerator = RankAccelerator(trainer.accelerator, rank, ranks)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    if hasattr(trainer, "_metrics"):
        ready._metrics = empty_metrics(trainer._metrics)  # noqa: SLF001 - the trainer's log
    ready.examples, ready.logprobs, ready.logits, ready.tokens = examples, logprobs, logits, tokens
    if logprobs is not None:
        set_logprobs(ready.model, logprobs)
    if logits is not None and tokens is not None:
        set_logits(ready.model, logits, tokens)
    return ready


def train_ranks(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """Run an optimizer step on data-parallel ranks; return the mean of their losses, and the trainer of rank 0.

    ``entry`` is not called here: it names the audited method, which the training step calls.
    """
    losses = run_on_ranks(len(trainers), lambda rank: train_rank(entry, trainers[rank]))
    return {"loss": torch.stack(losses).mean(), "trainer": trainers[0]}


def train_rank(_entry: Any, trainer: Any) -> Tensor:  # noqa: ANN401 - a method of the target, a trainer
    """Train on the micro-batches of a rank, and return the sum of the losses passed to ``backward``."""
    columns = trainer.train_dataset.column_names
    rows, parts = len(trainer.examples), trainer.args.gradient_accumulation_steps
    cuts = torch.arange(rows).tensor_split(parts)
    batches: Iterator[Any] = (
        trainer.data_collator([dataset_row(columns, trainer.examples[row]) for row in cut.tolist()])
        for cut in cuts
        if len(cut)
    )
    samples, tokens = list(batches), None
    if hasattr(trainer, "get_batch_samples"):
        samples, tokens = batch_samples(trainer, samples)
    for batch in samples:
        trainer.training_step(trainer.model, batch, tokens)
    return torch.stack(trainer.accelerator.losses).sum()


def alone(trainer: Any) -> Any:  # noqa: ANN401 - a trainer
    """The trainer with a new record of losses, separate from the record of the original trainer."""
    trainer.accelerator = RankAccelerator(trainer.accelerator.own, 0, 1)
    return trainer


def count_wrong_modes(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """Evaluate and train, and check under which mode the metrics are logged.

    Returns ``elsewhere``: the number of metrics that are logged under the wrong mode; ``mixed``: the number of metrics
    in an evaluation of the first row that depend on the training step before it; and ``step``: the loss of the training
    step. ``entry`` is not called here: it names the audited method, which evaluation and training call.
    """
    (trainer,) = trainers
    columns, losses = trainer.train_dataset.column_names, list[Tensor]()
    batch, first = (
        trainer.data_collator([dataset_row(columns, example) for example in examples])
        for examples in (trainer.examples, trainer.examples[:1])
    )
    mixed = mixed_with_training(
        trainer,
        lambda own: own.prediction_step(own.model, dict(first), True),  # noqa: FBT003 - as evaluation_loop
        lambda own: train_rank(entry, alone(own)),
    )
    elsewhere = logged_elsewhere(
        trainer,
        lambda: trainer.prediction_step(trainer.model, dict(batch), True),  # noqa: FBT003 - as evaluation_loop
        lambda: losses.append(train_rank(entry, trainer)),
    )
    return {"elsewhere": elsewhere, "mixed": mixed, "step": losses[0]}
