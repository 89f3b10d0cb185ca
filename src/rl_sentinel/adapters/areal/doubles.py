"""Doubles for AReaL: an FSDP engine of one process, a model with fixed outputs, and a filter for its tracker."""

import importlib
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.kit.replacement import replaced_globals
from rl_sentinel.adapters.process_group import one_process_group

#: Keys of the data that have the model's output at each position; AReaL packs and pads them like any other key.
LOGPROBS, ENTROPY, VALUES = "model_logprobs", "model_entropy", "model_values"


def fsdp_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """An engine of one process with doubles of model and optimizer; ``losses`` records the loss of each micro-batch."""
    losses: list[Tensor] = []

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        tokens = inputs["input_ids"].numel()
        values = (
            inputs[VALUES].reshape(1, tokens, 1) if VALUES in inputs else torch.zeros(1, tokens, 2).requires_grad_()
        )
        return SimpleNamespace(logits=values)

    def logprobs_and_entropy(
        _engine: object, _logits: Tensor, inputs: dict[str, Tensor], *_more: object
    ) -> tuple[Tensor, Tensor]:
        return inputs[LOGPROBS].reshape(-1), inputs[ENTROPY].reshape(-1)

    def record_loss(*args: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as the method
        loss: Tensor = owner._compute_logprobs_and_loss(*args, **options)  # noqa: SLF001 - the audited method
        losses.append(loss.detach())
        return loss

    def do_nothing(*_args: object, **_options: object) -> dict[str, float]:
        return {}

    parallel = SimpleNamespace(dp_size=1, sp_size=1, tp_size=1)
    own: dict[str, Any] = {
        "config": config,
        "model": staticmethod(model),
        "model_config": SimpleNamespace(model_type="qwen3"),
        "is_vision_model": False,
        "enable_tree_training": False,
        "is_offload": False,
        "parallel_helper": parallel,
        "dp_group": one_process_group(),
        "device": torch.device("cpu"),
        "logger": logging.getLogger("areal"),
        "get_version": lambda _engine: 0,
        "_compute_logprobs_entropy": logprobs_and_entropy,
        "_compute_logprobs_and_loss": record_loss,
        "losses": losses,
        **dict.fromkeys(("train", "_ensure_ready", "optimizer_zero_grad", "optimizer_step"), do_nothing),
    }
    return object.__new__(type("Engine", (owner,), own))


#: The tracker's functions that log metrics by name, and the names of their options.
LOGGING = ("stat", "scalar")
OPTIONS = frozenset({"denominator", "reduce_type", "reduce_group"})


def update(method: Callable[..., Any], trainer: Any, data: dict[str, Any], log: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401 - a trainer
    """The loss of one update, summed over micro-batches like the gradients, and the metrics named by ``log``.

    The tracker skips other metrics, because it takes most of the time of an update.
    """
    tracker: Any = importlib.import_module("areal.utils.stats_tracker")
    if log:
        tracker.export_all()
    trainer.engine.losses.clear()
    names = (*LOGGING, *(() if log else ("denominator",)))
    filters = {name: _only_names(getattr(tracker, name), log) for name in names if hasattr(tracker, name)}
    with replaced_globals(vars(tracker), **filters):
        method(trainer, data)
    return {"loss": torch.stack(trainer.engine.losses).sum(), "logged": tracker.export_all() if log else {}}


def _only_names(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., None]:
    """A function of the tracker that ignores metrics with other names."""

    def record(*options: Any, **numbers: Any) -> None:  # noqa: ANN401 - as the tracker's
        selected = {name: value for name, value in numbers.items() if name in OPTIONS or name in names}
        if selected.keys() - OPTIONS:
            function(*options, **selected)

    return record
