"""The averages that TRL's online trainers log over several steps, where some steps lack a metric."""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.binding import bindable
from rl_sentinel.adapters.kit.codecs import Column
from rl_sentinel.adapters.kit.forms import Number, PerRow
from rl_sentinel.adapters.kit.replacement import bare_instance
from rl_sentinel.adapters.kit.requirements import has_trained_token
from rl_sentinel.adapters.kit.value_codecs import functions
from rl_sentinel.adapters.target import Target
from rl_sentinel.adapters.trl.arguments import GRPO, RLOO
from rl_sentinel.adapters.trl.pair_codecs import NoPadding
from rl_sentinel.adapters.trl.subclasses import experimental_classes
from rl_sentinel.core.boundary import Boundary, Output, Unbound, one_call
from rl_sentinel.core.call import Use
from rl_sentinel.core.claims import claims

#: Source text of a ``log`` method that averages the values appended since the last log.
AVERAGES = "self._metrics[mode].items()"

#: Source text of a trainer that stores NaN if a reward function returned None.
UNSCORED = "is not None else torch.nan"

#: The name of the logged metric.
NAME = "rewards/first/mean"

_STEPS = (
    "grpo_trainer.py, log: the average over the steps since the last one; _generate_and_score_completions appends NaN "
    "where a reward function returned None for all completions of a step"
)


def boundaries(target: Target) -> Iterator[Boundary | Unbound]:
    """Boundaries of the ``log`` of each trainer that averages its metrics.

    There are no boundaries in releases where no step can lack a metric.
    """
    for path in (GRPO, RLOO, *experimental_classes(target, AVERAGES, UNSCORED)):
        log = f"{path}.log"
        if not target.has(log) or target.fails(log) or "log" not in vars(target.find(path)):
            continue
        if AVERAGES in inspect.getsource(target.find(log)) and _expects_none(target, path):
            yield from bindable(target, _averaged(log, path))


def _expects_none(target: Target, path: str) -> bool:
    return UNSCORED in inspect.getsource(inspect.getmodule(target.find(path)))  # type: ignore[arg-type]  # a class has a module


def _averaged(log: str, trainer: str) -> Boundary:
    return one_call(
        path=log,
        stage="metric",
        call=logged_average,
        name="average",
        arguments={
            **functions(entry=log, kind=trainer),
            "numbers": Column("reward", PerRow("list")),
            "scored": Column("mask", NoPadding()),
        },
        produced_by={"numbers": _STEPS},
        outputs={NAME: Output("", "reward", "outcome.mean", over="live", at=Use("average"), form=Number())},
        settings={"logging_steps above 1": {}},
        claims=claims(_STEPS),
        reach="logging_steps above 1, and reward functions that apply to some prompts only",
        requires=(has_trained_token,),
    )


def logged_average(entry: Callable[..., Any], kind: Any, numbers: list[float], scored: Tensor) -> float:  # noqa: ANN401 - a class of the target
    """The logged average over steps. Each row is a step; a row without a trained token is a step without a metric."""
    known = torch.where(scored.any(1), torch.tensor(numbers), torch.nan)
    found = write_metrics(entry, kind, {NAME: known.tolist()})[NAME]
    return float("nan") if found is None else float(found)


def write_metrics(entry: Callable[..., Any], kind: Any, metrics: Mapping[str, list[Any]]) -> dict[str, Any]:  # noqa: ANN401 - a class of the target
    """Call ``log`` in training mode after the trainer has appended ``metrics``; return the written entries."""
    from transformers import TrainerControl, TrainerState  # noqa: PLC0415 - in the target's overlay

    written: dict[str, Any] = {}
    trainer = bare_instance(
        kind,
        _metrics={"train": defaultdict(list, metrics), "eval": defaultdict(list)},
        model=SimpleNamespace(training=True),
        state=TrainerState(),
        control=TrainerControl(),
        args=SimpleNamespace(include_num_input_tokens_seen=False, report_to=[]),
        accelerator=SimpleNamespace(is_main_process=False),
        callback_handler=SimpleNamespace(on_log=lambda _args, _state, _control, logs: written.update(logs)),
        log_completions=False,
    )
    entry(trainer, {"loss": 0.0}, None)
    return written
