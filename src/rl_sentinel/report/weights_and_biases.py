"""Write the numbers of ``metrics.jsonl`` to Weights & Biases, if it is installed and a variable requests it."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_sentinel.core.errors import SentinelError

#: Environment variables of wandb; a run is logged if one of them is set.
ASKED_BY = ("WANDB_PROJECT", "WANDB_MODE")


class WeightsAndBiases:
    """Log a training run to wandb; does nothing if wandb is not installed, or no variable of ``ASKED_BY`` is set.

    ``WANDB_MODE=offline`` writes to ``wandb/`` in the folder and connects to nothing.

    Example:
        >>> from pathlib import Path
        >>> from rl_sentinel.report.weights_and_biases import WeightsAndBiases
        >>> board = WeightsAndBiases(Path("runs/a"), {"seed": 1})
        >>> board.step({"step": 1, "reward": 0.5}, {"step": 1})
        >>> board.close()
    """

    def __init__(self, folder: Path, recipe: Mapping[str, Any]) -> None:
        """Store the folder and the recipe; nothing is written before the first step."""
        self._folder, self._recipe = folder, recipe
        self._run: Any = None
        self._tried = False

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Write the numbers and times of a step.

        Raises:
            SentinelError: if wandb cannot start, for example without a key.
        """
        times = {f"time/{name}": value for name, value in timing.items() if name != "step"}
        numbers = {name: value for name, value in metrics.items() if name != "step"}
        self._log(int(metrics["step"]), {**numbers, **times})

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write an evaluation after a step; step 0 is before the first step.

        Raises:
            SentinelError: as for ``step``.
        """
        self._log(step, {f"evaluation/{name}": value for name, value in metrics.items()})

    def _log(self, step: int, numbers: Mapping[str, Any]) -> None:
        if not self._tried:
            self._run, self._tried = _start(self._folder, self._recipe), True
        if self._run is not None:
            self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """Finish the run."""
        if self._run is not None:
            self._run.finish()


def _start(folder: Path, recipe: Mapping[str, Any]) -> Any:  # noqa: ANN401 - wandb's run, an optional import
    if not any(os.environ.get(name) for name in ASKED_BY):
        return None
    try:
        import wandb  # noqa: PLC0415 - an extra of the user
    except ImportError:
        return None
    place = folder.resolve()
    same = hashlib.sha256(str(place).encode()).hexdigest()[:12]  # equal for the same folder, so a resumed run continues
    quiet = wandb.Settings(console="off", silent=True)
    try:
        return wandb.init(dir=place, id=same, name=folder.name, resume="allow", config=dict(recipe), settings=quiet)
    except wandb.Error as error:
        reason = " ".join(str(error).split())
        fix = "log in, set WANDB_MODE=offline, or unset " + " and ".join(ASKED_BY)
        raise SentinelError(f"wandb cannot start ({reason}): {fix}") from error
