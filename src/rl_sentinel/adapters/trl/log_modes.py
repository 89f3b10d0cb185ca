"""Whether TRL's trainers log numbers of an evaluation under training, or numbers of training under evaluation."""

import contextlib
import io
from collections.abc import Callable
from copy import copy
from typing import Any

#: What transformers adds to every entry of the history.
ALWAYS = ("epoch", "step", "loss")


def logged_elsewhere(
    trainer: Any,  # noqa: ANN401 - a trainer
    evaluate: Callable[[], object],
    train: Callable[[], object],
) -> float:
    """How many numbers an evaluation that a user asks for, and a step before another one is due, log as the other's."""
    trainer.control, trainer.state = copy(trainer.control), copy(trainer.state)
    trainer.state.log_history = []
    trainer.model.eval()
    trainer.control.should_evaluate = False
    evaluate()
    written = _log(trainer, {"eval_loss": 0.0})
    elsewhere = sum(not name.startswith("eval_") and name not in ALWAYS for name in written)
    trainer.model.train()
    trainer.control.should_evaluate = True
    train()
    written = _log(trainer, {"loss": 0.0})
    return float(elsewhere + sum(name.startswith("eval_") for name in written))


def _log(trainer: Any, logs: dict[str, float]) -> set[str]:  # noqa: ANN401 - a trainer
    """The names that ``log`` of a trainer writes to its history beside these."""
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.log(dict(logs))
    return set(trainer.state.log_history[-1]) - set(logs)
