"""Count metrics that TRL's trainers log under the wrong mode: evaluation as training, or training as evaluation."""

import contextlib
import io
from collections.abc import Callable
from copy import copy
from typing import Any

#: Names that transformers adds to every entry of the log history.
ALWAYS = ("epoch", "step", "loss")


def logged_elsewhere(
    trainer: Any,  # noqa: ANN401 - a trainer
    evaluate: Callable[[], object],
    train: Callable[[], object],
) -> float:
    """The number of metrics logged under the other mode.

    Run an evaluation that the user starts while none is scheduled, then a training step before a scheduled one.
    """
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
    """The names that the trainer's ``log`` adds to these in its history."""
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.log(dict(logs))
    return set(trainer.state.log_history[-1]) - set(logs)
