"""Doubles for AReaL: its FSDP engine with a model that answers from a table, and the numbers that its tracker has."""

import importlib
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rl_sentinel.adapters.process_group import one_process_group

#: Key of the data -> what the model answers at each position; packed and padded with the rest of the data.
LOGPROBS, ENTROPY, VALUES = "answered_logprobs", "answered_entropy", "answered_values"


def fsdp_engine(owner: Any, config: Any) -> Any:  # noqa: ANN401 - AReaL's engine class, its configuration, an engine
    """An engine of one process, whose model and optimizer are doubles; ``losses`` has those of all micro-batches."""
    losses: list[Tensor] = []

    def model(**inputs: Tensor) -> Any:  # noqa: ANN401 - what a model returns
        tokens = inputs["input_ids"].numel()
        values = (
            inputs[VALUES].reshape(1, tokens, 1) if VALUES in inputs else torch.zeros(1, tokens, 2).requires_grad_()
        )
        return SimpleNamespace(logits=values)

    def answer(_engine: object, _logits: Tensor, inputs: dict[str, Tensor], *_more: object) -> tuple[Tensor, Tensor]:
        return inputs[LOGPROBS].reshape(-1), inputs[ENTROPY].reshape(-1)

    def loss(*passed: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as the method
        found: Tensor = owner._compute_logprobs_and_loss(*passed, **options)  # noqa: SLF001 - the method that is audited
        losses.append(found.detach())
        return found

    def nothing(*_passed: object, **_options: object) -> dict[str, float]:
        return {}

    parallel = SimpleNamespace(dp_size=1, sp_size=1, tp_size=1)
    own: dict[str, Any] = {
        "config": config,
        "model": staticmethod(model),
        "model_config": SimpleNamespace(model_type="qwen3"),
        "is_vision_model": False,
        "enable_tree_training": False,
        "parallel_helper": parallel,
        "dp_group": one_process_group(),
        "device": torch.device("cpu"),
        "logger": logging.getLogger("areal"),
        "get_version": lambda _engine: 0,
        "_compute_logprobs_entropy": answer,
        "_compute_logprobs_and_loss": loss,
        "losses": losses,
        **dict.fromkeys(("train", "_ensure_ready", "optimizer_zero_grad", "optimizer_step"), nothing),
    }
    return object.__new__(type("Engine", (owner,), own))


#: What AReaL's losses call to log numbers by name, and the options of these calls.
LOGGING, OPTIONS = ("stat", "scalar"), frozenset({"denominator", "reduce_type", "reduce_group"})


def update(method: Callable[..., Any], trainer: Any, data: dict[str, Any], log: tuple[str, ...]) -> dict[str, Any]:  # noqa: ANN401 - a trainer
    """The loss of one update, added up as its engine's gradients are, and what was logged under the names of ``log``.

    The tracker aggregates each name on its own, which takes most of the time of an update: others are left out.
    """
    tracker: Any = importlib.import_module("areal.utils.stats_tracker")
    if log:
        tracker.export_all()
    trainer.engine.losses.clear()
    own = {name: getattr(tracker, name) for name in LOGGING if hasattr(tracker, name)}
    if not log and hasattr(tracker, "denominator"):
        own["denominator"] = tracker.denominator
    try:
        vars(tracker).update({name: _of_names(function, log) for name, function in own.items()})
        method(trainer, data)
    finally:
        vars(tracker).update(own)
    return {"loss": torch.stack(trainer.engine.losses).sum(), "logged": tracker.export_all() if log else {}}


def _of_names(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., None]:
    """A function of the tracker that is passed these names alone."""

    def record(*options: Any, **numbers: Any) -> None:  # noqa: ANN401 - as the tracker's
        wanted = {name: value for name, value in numbers.items() if name in OPTIONS or name in names}
        if wanted.keys() - OPTIONS:
            function(*options, **wanted)

    return record
