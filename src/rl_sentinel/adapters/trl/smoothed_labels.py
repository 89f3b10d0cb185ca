"""TRL's supervised fine-tuning with label smoothing: a step logs the metrics that it logs without."""

import inspect
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import one_rank
from rl_sentinel.adapters.trl.log_modes import empty_metrics
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.release import fields_of
from rl_sentinel.adapters.trl.supervised import LOGGED, SFT, step_boundary, trainers_of_ranks
from rl_sentinel.adapters.trl.supervised_trainer import alone, train_rank
from rl_sentinel.core.boundary import Boundary, Output, Unbound
from rl_sentinel.core.call import Use
from rl_sentinel.core.case import Settings
from rl_sentinel.core.claims import claims
from rl_sentinel.core.codec import Codec

#: The setting, of transformers. With it, or with a loss function of the user, ``Trainer.compute_loss`` takes the labels
#: out of the inputs.
SMOOTHED: Settings = {"label_smoothing_factor": 0.25}

#: In the source of releases that replace the model's forward pass by a fused one. With label smoothing they also need
#: the replaced pass, which known logits do not reach.
FUSED = ("fused_lm_head=True", '"chunked_nll"')

_LOGS = (
    "sft_trainer.py, compute_loss: computes the accuracy of the tokens that train, and logs its mean; transformers, "
    "TrainingArguments, label_smoothing_factor: changes the labels of the loss"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the names of logged metrics, in releases that log metrics of the loss's tokens by mode."""
    path = f"{SFT}.compute_loss"
    if not target.has(path) or target.fails(path) or "compute_loss" not in vars(target.find(SFT)):
        return
    source = inspect.getsource(inspect.getmodule(target.find(SFT)))  # type: ignore[arg-type]  # a class has a module
    if '"train": defaultdict' not in source or not any(f'["{name}"]' in source for name in LOGGED):
        return
    if any(mark in source for mark in FUSED) or not set(SMOOTHED) <= set(fields_of(target, SFT)):
        return
    masked = "completion_mask" in source or "assistant_masks" in source
    columns: dict[str, Codec] = {"logits": Column("logits", NoPadding()), "tokens": Column("token", NoPadding())}
    boundary = step_boundary(
        path,
        "names of logged metrics, logits",
        count_missing,
        trainers_of_ranks(SMOOTHED, columns, masked=masked, alone=True),
        {
            "step": Output("", at=Use("trained")["step"]),
            "metrics that are not logged": Output(
                "", "count", "logged_elsewhere", at=Use("trained")["missing"], form=Number()
            ),
        },
        claims(_LOGS),
        settings=SMOOTHED,
        masked=masked,
        stage="batch",
    )
    yield from bindable(target, replace(boundary, requires=(*boundary.requires, one_rank)))


def count_missing(entry: Any, trainers: list[Any]) -> dict[str, Any]:  # noqa: ANN401 - a method of the target, trainers
    """Train a step without label smoothing, and one with it.

    Returns ``missing``: the number of metrics that only the first one logs; and ``step``: the loss of the second one.
    """
    (trainer,) = trainers
    plain = copy(trainer)
    plain.label_smoother, plain._metrics = None, empty_metrics(trainer._metrics)  # noqa: SLF001 - the trainer's log
    train_rank(entry, alone(plain))
    loss = train_rank(entry, alone(trainer))
    names = (set(one._metrics["train"]) for one in (plain, trainer))  # noqa: SLF001 - as above
    return {"step": loss, "missing": float(len(next(names) - next(names)))}
