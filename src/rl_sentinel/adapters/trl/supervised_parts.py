"""TRL's supervised fine-tuning under context parallelism: metrics of ranks that each have a part of a sequence."""

import inspect
import re
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import one_rank
from rl_sentinel.adapters.trl.log_modes import empty_metrics
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.supervised import LOGGED, SFT, step_boundary, trainers_of_ranks
from rl_sentinel.adapters.trl.supervised_trainer import dataset_row
from rl_sentinel.adapters.trl.token_model import LogitBackbone
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: Ranks that share a sequence.
PARTS = 2

#: The field of the configuration that context parallelism needs.
MULTIPLE = "pad_to_multiple_of"

#: In the source of releases that support parts of sequences.
SUPPORTED = re.compile(r'"shift_labels"|context parallelism', re.IGNORECASE)

#: A label that is not trained.
IGNORED = -100

_LOGS = (
    "docs/source/sft_trainer.md: accuracy of the tokens that train; docs/source/reducing_memory_usage.md: "
    "context parallelism; transformers, Trainer._prepare_context_parallel_inputs: labels are shifted before the split"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the logged accuracy, in releases that support context parallelism and can pad batches for it."""
    path, name = f"{SFT}.compute_loss", "mean_token_accuracy"
    if not target.has(path) or target.fails(path) or "compute_loss" not in vars(target.find(SFT)):
        return
    source = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    if (
        not SUPPORTED.search(source)
        or f'["{name}"]' not in source
        or '"train": defaultdict' not in source
        or MULTIPLE not in fields_of(target, SFT)
    ):
        return
    columns: dict[str, Codec] = {"logits": Column("logits", NoPadding()), "tokens": Column("token", NoPadding())}
    boundary = step_boundary(
        path,
        "logged of logits, parts of sequences",
        train_parts,
        trainers_of_ranks({}, columns, masked="completion_mask" in source, alone=True),
        {name: Output("", over="live", at=Use("trained")["metrics"][name], form=Logged())},
        claims(_LOGS, output_algorithms={name: LOGGED[name]}),
        settings={},
        masked="completion_mask" in source,
    )
    reach = f"context or sequence parallelism over {PARTS} ranks"
    yield from bindable(target, replace(boundary, reach=reach, requires=(*boundary.requires, one_rank)))


def train_parts(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """Compute the loss of a batch whose sequences are split over ranks.

    Returns ``loss``: the sum of the ranks' losses; and ``metrics``: the metrics of rank 0.
    """
    (trainer,) = trainers
    rows = [dataset_row(trainer.train_dataset.column_names, example) for example in trainer.examples]
    whole = as_shifted(trainer.data_collator(rows))
    backbone = LogitBackbone(trainer.logits, trainer.tokens)
    size = whole["input_ids"].shape[1] // PARTS
    count = whole["shift_labels"].ne(IGNORED).sum()
    ranks = []
    for rank in range(PARTS):
        ready, part = copy(trainer), slice(rank * size, (rank + 1) * size)
        ready.accelerator = RankAccelerator(trainer.accelerator.own, rank, PARTS)
        ready.model = ready.model_wrapped = deepcopy(trainer.model)
        ready.model.model.forward = partial(logits_of_part, backbone, whole["input_ids"], part)
        ready._metrics = empty_metrics(trainer._metrics)  # noqa: SLF001 - the trainer's log
        ranks.append((ready, {name: value[:, part].contiguous() for name, value in whole.items()}))
    losses = run_on_ranks(
        PARTS, lambda rank: entry(ranks[rank][0], ranks[rank][0].model, ranks[rank][1], num_items_in_batch=count)
    )
    return {"loss": torch.stack(losses).sum(), "metrics": ranks[0][0]._metrics["train"]}  # noqa: SLF001 - as above


def as_shifted(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pad a collated batch to a multiple of :data:`PARTS` tokens, and add labels of the next tokens and positions."""
    missing = -batch["input_ids"].shape[1] % PARTS
    fill = {"labels": IGNORED}
    even = {name: pad(value, (0, missing), value=fill.get(name, 0)) for name, value in batch.items()}
    even["shift_labels"] = pad(even["labels"][:, 1:], (0, 1), value=IGNORED)
    even["position_ids"] = torch.arange(even["input_ids"].shape[1]).expand_as(even["input_ids"])
    return even


def logits_of_part(
    backbone: LogitBackbone, ids: Tensor, part: slice, *_own: object, **_more: object
) -> SimpleNamespace:
    """The logits at the positions of a part. Each token also attends to the earlier parts."""
    whole = backbone(ids).last_hidden_state[:, part]
    return SimpleNamespace(last_hidden_state=whole, past_key_values=None, hidden_states=None, attentions=None)
