"""Write the numbers of ``metrics.jsonl`` to TensorBoard, if it is installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """A TensorBoard writer in a run's folder; it does nothing if TensorBoard is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from rl_sentinel.report.tensorboard import TensorBoard
        >>> TensorBoard(Path(tempfile.mkdtemp())).step({"step": 1, "reward": 0.5}, {"step": 1})
    """

    def __init__(self, folder: Path) -> None:
        """Store the folder; nothing is written before the first step."""
        self._folder, self._writer, self._tried = folder / "tensorboard", None, False

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Write the numbers and times of a step; the first call discards later steps that a killed run wrote."""
        if not self._tried:
            self._writer, self._tried = _writer(self._folder, int(metrics["step"])), True
        if self._writer is not None:
            for name, value in [*metrics.items(), *((f"time/{n}", v) for n, v in timing.items())]:
                if not name.endswith("step"):
                    self._writer.add_scalar(name, value, int(metrics["step"]))

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, step: int) -> Any:  # noqa: ANN401 - torch's writer, an optional import
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)
