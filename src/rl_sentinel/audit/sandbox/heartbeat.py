"""Heartbeat of a child: the number of calls it began, in memory shared with the parent."""

import mmap
import struct

_FORM = "Q"


class Pulse:
    """A count in memory that survives a fork on both sides.

    Example:
        >>> from rl_sentinel.audit.sandbox.heartbeat import Pulse
        >>> pulse = Pulse()
        >>> pulse.beat()
        >>> pulse.count
        1
    """

    def __init__(self) -> None:
        """Start at zero."""
        self._memory = mmap.mmap(-1, struct.calcsize(_FORM))

    def beat(self) -> None:
        """Count one more call."""
        struct.pack_into(_FORM, self._memory, 0, self.count + 1)

    @property
    def count(self) -> int:
        """Calls begun so far."""
        return int(struct.unpack_from(_FORM, self._memory)[0])

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


_mine: list[Pulse] = []


def adopt(pulse: Pulse) -> None:
    """Make ``pulse`` the one of this process."""
    _mine[:] = [pulse]


def beat() -> None:
    """Count a call of this process, if it is watched."""
    if _mine:
        _mine[0].beat()
