"""Heartbeat of a child process: the number of calls that it has started, in memory shared with the parent."""

import mmap
import struct

_FORMAT = "Q"


class CallCounter:
    """A counter of calls, in memory that parent and forked child share.

    Example:
        >>> from rl_sentinel.audit.sandbox.heartbeat import CallCounter
        >>> calls = CallCounter()
        >>> calls.beat()
        >>> calls.count
        1
    """

    def __init__(self) -> None:
        """Start at zero."""
        self._memory = mmap.mmap(-1, struct.calcsize(_FORMAT))

    def beat(self) -> None:
        """Count one more call."""
        struct.pack_into(_FORMAT, self._memory, 0, self.count + 1)

    @property
    def count(self) -> int:
        """Number of calls started so far."""
        return int(struct.unpack_from(_FORMAT, self._memory)[0])

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()


_adopted: list[CallCounter] = []


def adopt(counter: CallCounter) -> None:
    """Use ``counter`` as the counter of this process."""
    _adopted[:] = [counter]


def beat() -> None:
    """Count a call of this process, if it is watched."""
    if _adopted:
        _adopted[0].beat()
