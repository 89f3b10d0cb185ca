"""TRL's asynchronous GRPO: queued samples are packed and collated, and each rank computes its loss."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.containers import EachRow, Object, Table
from rl_sentinel.adapters.kit.layout_counts import MICRO_BATCHES
from rl_sentinel.adapters.kit.per_response import PerResponse
from rl_sentinel.adapters.kit.rank_threads import run_on_ranks
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import equal_parts, every_row_trains, no_empty_response
from rl_sentinel.adapters.kit.row_codecs import Cell, RowTokens
from rl_sentinel.adapters.kit.value_codecs import Constant, Derived, Earlier, knobs
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import itself
from rl_sentinel.adapters.trl.loss_families import RATIO, ROW
from rl_sentinel.adapters.trl.losses import logged_metrics
from rl_sentinel.adapters.trl.rank_fakes import RankAccelerator
from rl_sentinel.adapters.trl.release import source_of
from rl_sentinel.adapters.trl.result_forms import Logged
from rl_sentinel.adapters.trl.token_model import FIRST, PROMPT
from rl_sentinel.core.boundary import Boundary, Output, Step, Unbound
from rl_sentinel.core.call import Function, Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import Claims, claims
from rl_sentinel.core.codec import Codec

_MODULE = "trl.experimental.async_grpo.async_grpo_trainer"
TRAINER = f"{_MODULE}.AsyncGRPOTrainer"
COLLATOR = f"{_MODULE}.DataCollatorForRollout"
PLANNER = f"{_MODULE}.FixedCountBatcher"

#: The number of prompt tokens before each completion.
PROMPT_WIDTH = 2

SETTINGS: Settings = {"clip_low": 0.2, "clip_high": 0.28}

_LOSS = (
    claims("async_grpo_config.py, AsyncGRPOConfig, docstring of epsilon and epsilon_high", algorithm="ppo")
    | claims(
        "async_grpo_trainer.py, compute_loss, comment: per-token normalization over the tokens of all ranks",
        aggregation="token-mean",
    )
    | claims("async_grpo_trainer.py, compute_loss: (coef_1 - 1) - log_ratio, commented as an approximate KL", kl="k3")
    | claims(
        "async_grpo_trainer.py, compute_loss: log_ratio = log_probs - old_log_probs",
        output_pairs={"kl": "old_logprob against logprob"},
    )
)

_OVER_RANKS = claims(
    "async_grpo_trainer.py, DataCollatorForRollout: global_n_tokens is the count over all ranks", denominator="given"
)

_PRODUCER = (
    "async_grpo_trainer.py, RolloutQueueDataset: one dict per sample of the queue; async_rollout_worker.py: ids, mask "
    "and log-probs of prompt and completion, with 0 at tokens that were not sampled"
)

#: Key of a queued sample -> its column.
SAMPLE: Mapping[str, Codec] = {
    "completion_mask": RowTokens("mask", "int"),
    "old_log_probs": RowTokens("old_logprob"),
    "advantage": PerResponse("advantage"),
    "group_id": Cell("group", "int"),
}

_RANKS = Derived(lambda inputs: inputs.layout.ranks, frozenset({"ranks"}))


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the loss over micro-batches and ranks, and the metrics that rank 0 logs."""
    path = f"{TRAINER}.compute_loss"
    if not target.has(path):
        return
    if why := target.fails(TRAINER):
        yield Unbound(path, "policy-loss", why)
    elif "completion_mask=completion_mask" in (source := source_of(target.find(path))) or "shift_labels=" in source:
        yield from bindable(target, _loss(target, path, alone=False), _loss(target, path, alone=True))
    else:
        yield Unbound(path, "policy-loss", "the model returns logits, but only models that return log-probs are bound")


def _loss(target: Target, path: str, *, alone: bool) -> Boundary:
    """The boundary of the loss over a step's micro-batches; with ``alone``, of one micro-batch, split over ranks."""
    trainers = Object(
        make_async_trainers,
        {
            "kind": Constant(Function(TRAINER)),
            **knobs("clip_low", "clip_high"),
            "micro_batches": Constant(1) if alone else MICRO_BATCHES,
            "ranks": _RANKS if alone else Constant(1),
        },
        at={
            "kind": "0.__class__",
            "clip_low": "0.epsilon_low",
            "clip_high": "0.epsilon_high",
            "micro_batches": "0.current_gradient_accumulation_steps",
            "ranks": "0.accelerator.num_processes",
        },
    )
    step = Step(
        call=train_on_samples,
        name="loss",
        arguments={
            "entry": Constant(Function(path)),
            "trainers": Earlier(Use("ready")),
            "collator": Constant(Function(COLLATOR)),
            "planner": Constant(Function(PLANNER) if target.has(PLANNER) else None),
            "samples": EachRow(Table(dict(SAMPLE))),
            "model": Object(FusedModel, {"logprobs": Column("logprob"), "entropies": Column("entropy")}),
        },
        each=() if alone else ("micro_batch",),
        produced_by={"samples": _PRODUCER},
    )
    place = Use("ready")[0].attribute("_metrics")["train"]
    logged, definitions = logged_metrics(source_of(target.find(path)), SETTINGS, place)
    logged["kl"] = Output("", "nats", "kl.mean", over="live", at=place["kl"], form=Logged())
    loss = Output("", "", "loss", at=Use("loss"))
    return Boundary(
        path=path,
        stage="policy-loss",
        steps=(Step(call=itself, name="ready", arguments={"trainer": trainers}), step),
        unused=frozenset({"group"}),
        outputs={"loss": loss if alone else replace(loss, join="sum"), **logged},
        settings={"over ranks" if alone else "default": SETTINGS},
        claims=RATIO | ROW | _LOSS | definitions | (_OVER_RANKS if alone else Claims()),
        reach="epsilon=0.2, epsilon_high=0.28, per_device_train_batch_size above 1",
        requires=(equal_parts, no_empty_response, every_row_trains),
    )


class Answer(dict[str, Tensor]):
    """The output of a model. Some TRL releases read a tensor by key, others by attribute."""

    def __getattr__(self, name: str) -> Tensor:
        """The tensor with this name."""
        return self[name]


class FusedModel:
    """A fake model with a fused head: it looks up the log-prob and entropy of each label by token id."""

    def __init__(self, logprobs: Tensor, entropies: Tensor) -> None:
        """Store ``[B, T]`` log-probs and entropies."""
        self.logprobs, self.entropies = logprobs, entropies

    def __call__(self, labels: Tensor | None = None, shift_labels: Tensor | None = None, **_more: object) -> Answer:
        """Log-probs and entropies: for each of ``shift_labels`` if given, else for each of ``labels[:, 1:]``.

        Raises:
            TypeError: if both are None.
        """
        if shift_labels is None:
            if labels is None:
                message = "the fake model got neither labels nor shift_labels, expected one of them"
                raise TypeError(message)
            shift_labels = labels[:, 1:]
        place = shift_labels - FIRST
        known = (place >= 0) & (place < self.logprobs.numel())
        columns = {"log_probs": self.logprobs.flatten(), "entropy": self.entropies.flatten()}
        index = torch.where(known, place, 0)
        return Answer({name: torch.where(known, column[index], 0.0) for name, column in columns.items()})


def make_async_trainers(kind: type, clip_low: float, clip_high: float, micro_batches: int, ranks: int) -> list[Any]:
    """One bare trainer per rank, with the attributes that its loss reads."""
    zero = dict.fromkeys(
        (
            "_step_forward_s",
            "_step_forward_tokens",
            "_step_trained_tokens",
            "_step_seq_len_weighted",
            "_step_samples",
        ),
        0.0,
    )
    return [
        bare_instance(
            kind,
            epsilon_low=clip_low,
            epsilon_high=clip_high,
            temperature=1.0,
            aux_loss_enabled=False,
            current_gradient_accumulation_steps=micro_batches,
            accelerator=RankAccelerator(None, rank, ranks),
            _metrics={mode: defaultdict(list) for mode in ("train", "eval")},
            _train_tokens_start_time=None,
            **zero,
        )
        for rank in range(ranks)
    ]


def train_on_samples(  # noqa: PLR0913 - the parts of a trainer that a micro-batch passes through
    entry: Callable[..., Tensor],
    trainers: list[Any],
    collator: Any,  # noqa: ANN401 - a class of the target
    planner: Any,  # noqa: ANN401 - a class of the target, or None
    samples: list[dict[str, Any]],
    model: FusedModel,
) -> Tensor:
    """Pack and collate samples, compute the loss on each rank, and return the mean over ranks.

    It is the mean because data parallelism averages gradients over ranks.
    """
    ranks, width = len(trainers), model.logprobs.shape[1]
    queued = [as_queued(sample, FIRST + row * width) for row, sample in enumerate(samples)]
    by_rank = "num_processes" in collator.__dataclass_fields__
    packer = collator(0, ranks) if by_rank else collator(0)
    batch = packer.torch_call([next(iter(planner(queued, ranks, len(queued))))] if planner else queued)
    losses = run_on_ranks(
        ranks, lambda rank: entry(trainers[rank], model, {key: share(x, rank, ranks) for key, x in batch.items()})
    )
    return torch.stack(losses).mean()


def as_queued(
    sample: Mapping[str, Any], first: int, prompt: Sequence[int] = (PROMPT,) * PROMPT_WIDTH
) -> dict[str, Any]:
    """The sample in the form in which the rollout worker queues it, with a distinct id per completion token."""
    mask, nothing = sample["completion_mask"], [0] * len(prompt)
    return {
        "input_ids": np.asarray([*prompt, *range(first, first + len(mask))], dtype=np.int64),
        "completion_mask": np.asarray(nothing + mask, dtype=np.int64),
        "old_log_probs": np.asarray(nothing + sample["old_log_probs"], dtype=np.float32),
        "advantage": float(sample["advantage"]),
        "group_id": sample["group_id"],
        "metrics": {},
    }


def share(value: Any, rank: int, ranks: int) -> Any:  # noqa: ANN401 - a tensor, or a dict of them
    """The part of a batch that one rank gets: each tensor is split along its rows into ``ranks`` parts."""
    if isinstance(value, Mapping):
        return {key: share(part, rank, ranks) for key, part in value.items()}
    return value.tensor_split(ranks)[rank]
