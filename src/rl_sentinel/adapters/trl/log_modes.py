"""Count metrics that TRL logs under the wrong mode: evaluation metrics as training metrics, or the reverse."""

import contextlib
import io
from collections import defaultdict
from collections.abc import Callable
from copy import copy
from typing import Any

#: Names that transformers adds to every entry of the log history.
ALWAYS = ("epoch", "step", "loss")


def empty_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """An empty log in the trainer's format: one dict per mode, or one dict for both modes."""
    return {mode: defaultdict(list) for mode in ("train", "eval")} if "train" in metrics else defaultdict(list)


def logged_elsewhere(
    trainer: Any,  # noqa: ANN401 - a trainer
    evaluate: Callable[[], object],
    train: Callable[[], object],
) -> float:
    """Evaluate and train, and count the metrics that are logged under the wrong mode.

    First, the user starts an evaluation while none is scheduled. Then a training step runs before a scheduled
    evaluation.
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


def mixed_with_training(
    trainer: Any,  # noqa: ANN401 - a trainer
    evaluate: Callable[[Any], object],
    train: Callable[[Any], object],
) -> float:
    """Count the metrics of a scheduled evaluation that depend on whether the training step before it was logged.

    Both functions get a copy of the trainer.
    """
    values = [_evaluated(trainer, evaluate, train, logged=logged) for logged in (True, False)]
    return float(sum(values[0].get(name) != values[1].get(name) for name in values[0].keys() | values[1].keys()))


def _evaluated(
    trainer: Any,  # noqa: ANN401 - a trainer
    evaluate: Callable[[Any], object],
    train: Callable[[Any], object],
    *,
    logged: bool,
) -> Any:  # noqa: ANN401 - a dict of metrics
    """Train, then evaluate, and return the metrics that the evaluation logs.

    With ``logged``, the metrics of the training step are logged before the evaluation.
    """
    own = copy(trainer)
    own.control, own.state = copy(trainer.control), copy(trainer.state)
    own.state.log_history, own._metrics = [], empty_metrics(trainer._metrics)  # noqa: SLF001 - the trainer's log
    own.model.train()
    own.control.should_evaluate = False
    train(own)
    if logged:
        _log(own, {"loss": 0.0})
    own.model.eval()
    own.control.should_evaluate = True
    evaluate(own)
    _log(own, {"eval_loss": 0.0})
    return own.state.log_history[-1]


def _log(trainer: Any, logs: dict[str, float]) -> set[str]:  # noqa: ANN401 - a trainer
    """The names that ``log`` writes to the trainer's history in addition to the names in ``logs``."""
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.log(dict(logs))
    return set(trainer.state.log_history[-1]) - set(logs)
