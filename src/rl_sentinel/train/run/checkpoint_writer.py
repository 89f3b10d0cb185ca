"""Write checkpoints in the thread of the loop, or in a separate thread while training continues."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class CheckpointWriter:
    """Runs functions that write checkpoints, one at a time; their errors are raised by ``write`` or ``close``.

    Example:
        >>> from rl_sentinel.train.run.checkpoint_writer import CheckpointWriter
        >>> written = []
        >>> writer = CheckpointWriter(background=True)
        >>> writer.write(lambda: written.append(1))
        >>> writer.close()
        >>> written
        [1]
    """

    def __init__(self, *, background: bool) -> None:
        """Run functions in a separate thread if ``background``, otherwise in the calling thread."""
        self._thread = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._running: Future[object] | None = None

    def write(self, save: Callable[[], object]) -> None:
        """Run a function after the earlier one has ended.

        Raises:
            Exception: the error of the earlier function or, without ``background``, of this function.
        """
        self._wait()
        if self._thread is None:
            save()
        else:
            self._running = self._thread.submit(save)

    def close(self) -> None:
        """Wait for the checkpoint that is being written, if any, and stop the thread.

        Raises:
            Exception: the error of that checkpoint.
        """
        try:
            self._wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()
