"""Supervised trainers of TRL over the micro-batches and ranks of one optimizer step, on known log-probs or logits."""

import inspect
from collections import defaultdict
from collections.abc import Iterator
from copy import copy, deepcopy
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.trl.log_modes import logged_elsewhere
from rl_sentinel.adapters.trl.ranks import RankAccelerator
from rl_sentinel.adapters.trl.token_model import answer_with, answer_with_logits

#: A row of the data set: ids of the prompt, ids of the response, and which of these train.
Example = dict[str, list[int]]


def prepared(columns: list[str], example: Example) -> dict[str, list[int]]:
    """A row with the columns that the trainer's own data set has after its preparation."""
    ids = example["prompt"] + example["response"]
    trained = [0] * len(example["prompt"]) + example["trained"]
    every = {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [token if one else -100 for token, one in zip(ids, trained, strict=True)],
        "completion_mask": trained,
        "assistant_masks": trained,
        "seq_lengths": [len(ids)],
    }
    return {name: every[name] for name in columns if name in every}


def ready_to_fit(  # noqa: PLR0913 - the trainer, its place among the ranks, and what the model answers
    trainer: Any,  # noqa: ANN401 - a trainer
    micro_batches: int,
    rank: int,
    ranks: int,
    examples: list[Example],
    logprobs: Tensor | None = None,
    logits: Tensor | None = None,
    tokens: Tensor | None = None,
) -> Any:  # noqa: ANN401 - a trainer
    """The trainer of a rank before an optimizer step on these rows."""
    ready = copy(trainer)
    ready.args, ready.state = copy(trainer.args), copy(trainer.state)
    ready.args.distributed_state = SimpleNamespace(num_processes=ranks, process_index=rank)
    ready.model = ready.model_wrapped = deepcopy(trainer.model)
    ready.accelerator = RankAccelerator(trainer.accelerator, rank, ranks)
    ready.current_gradient_accumulation_steps = ready.args.gradient_accumulation_steps = micro_batches
    if hasattr(trainer, "_metrics"):
        separate = "train" in trainer._metrics  # noqa: SLF001 - where the trainer logs
        ready._metrics = {m: defaultdict(list) for m in ("train", "eval")} if separate else defaultdict(list)  # noqa: SLF001
    ready.examples, ready.logprobs, ready.logits, ready.tokens = examples, logprobs, logits, tokens
    if logprobs is not None:
        answer_with(ready.model, logprobs)
    if logits is not None and tokens is not None:
        answer_with_logits(ready.model, logits, tokens)
    return ready


def fitted(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """The optimizer step that data-parallel ranks take: the mean of their losses, and the trainer of the first.

    ``entry`` is the method of the target that the step enters.
    """
    losses = run_on_ranks(len(trainers), lambda rank: fit(entry, trainers[rank]))
    return {"loss": torch.stack(losses).mean(), "trainer": trainers[0]}


def fit(_entry: Any, trainer: Any) -> Tensor:  # noqa: ANN401 - a method of the target, a trainer
    """The sum of what ``backward`` is called with, over the micro-batches of a rank."""
    columns = trainer.train_dataset.column_names
    rows, parts = len(trainer.examples), trainer.args.gradient_accumulation_steps
    cuts = torch.arange(rows).tensor_split(parts)
    batches: Iterator[Any] = (
        trainer.data_collator([prepared(columns, trainer.examples[row]) for row in cut.tolist()])
        for cut in cuts
        if len(cut)
    )
    taken, tokens = list(batches), None
    if hasattr(trainer, "get_batch_samples"):
        device = (
            {"device": torch.device("cpu")}
            if "device" in inspect.signature(trainer.get_batch_samples).parameters
            else {}
        )
        taken, tokens = trainer.get_batch_samples(iter(taken), len(taken), **device)
    for batch in taken:
        trainer.training_step(trainer.model, batch, tokens)
    return torch.stack(trainer.accelerator.losses).sum()


def evaluated(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """How many numbers an evaluation, or a step of training, logs as those of the other one; and the step's loss.

    ``entry`` is the method of the target that both enter.
    """
    (trainer,) = trainers
    columns, losses = trainer.train_dataset.column_names, list[Tensor]()
    batch = trainer.data_collator([prepared(columns, one) for one in trainer.examples])
    elsewhere = logged_elsewhere(
        trainer,
        lambda: trainer.prediction_step(trainer.model, dict(batch), True),  # noqa: FBT003 - as evaluation_loop
        lambda: losses.append(fit(entry, trainer)),
    )
    return {"elsewhere": elsewhere, "step": losses[0]}
