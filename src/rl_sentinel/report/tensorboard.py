"""TensorBoard, where it is installed: the same numbers as ``metrics.jsonl``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TensorBoard:
    """A writer below a run's folder, or nothing if TensorBoard is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from rl_sentinel.report.tensorboard import TensorBoard
        >>> TensorBoard(Path(tempfile.mkdtemp())).step({"step": 1, "reward": 0.5}, {"step": 1})
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is written before the first step."""
        self._folder, self._writer, self._tried = folder / "tensorboard", None, False

    def step(self, seen: Mapping[str, Any], spent: Mapping[str, Any]) -> None:
        """The numbers and times of a step; those of a later step that a killed run had written are taken back."""
        if not self._tried:
            self._writer, self._tried = _writer(self._folder, int(seen["step"])), True
        if self._writer is not None:
            for name, value in [*seen.items(), *((f"time/{n}", v) for n, v in spent.items())]:
                if not name.endswith("step"):
                    self._writer.add_scalar(name, value, int(seen["step"]))

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()


def _writer(folder: Path, step: int) -> Any:  # noqa: ANN401 - torch's writer, where it can be made
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step)
